// Adam's step for all parameters: `adam_begin` counts the step and sums the squares of the gradients, `adam_update` clips and updates.
//
// A block has `elements` numbers of one tensor. `adam_update` does not let the next kernel start early, since kernels may read weights before
// they wait. Macros: MAX_TENSORS, MAX_GROUPS.
#include "device.cuh"
#include "adam_structs.h"  // molgcn/ops/adam_cuda.py

constexpr int threads = 256, each = 4, elements = threads * each, warps = threads / 32;

// Adds up a number of every thread in a fixed order; thread 0 gets the sum.
__device__ __forceinline__ double block_sum(double x, double* sums) {
    for (int mask = 16; mask > 0; mask /= 2) x += shuffle_xor(x, mask);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = x;
    __syncthreads();
    double total = 0.0;
    for (int warp = 0; warp < warps; warp++) total += sums[warp];
    return total;
}

// Counts the step, and writes the sum of the squares of each block's gradients.
extern "C" __global__ void __launch_bounds__(threads) adam_begin(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    const Entry& it = entry_of_block(p.tensors, p.num_tensors);
    const int first = (blockIdx.x - it.first_block) * elements + threadIdx.x;
    wait_for_previous();
    if (first == 0) *it.step += 1.0f;
    if (p.max_norm <= 0.0f) return;
    double squares = 0.0;
    for (int k = 0; k < each; k++) {
        const int i = first + k * threads;
        const double gradient = i < it.size ? it.gradient[i] : 0.0f;
        squares += gradient * gradient;
    }
    squares = block_sum(squares, reinterpret_cast<double*>(memory));
    if (threadIdx.x == 0) p.squares[blockIdx.x] = squares;
}

struct Factors {
    float clip, rate, step_size, root_correction;
};

extern "C" __global__ void __launch_bounds__(threads) adam_update(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    Factors& shared = *reinterpret_cast<Factors*>(memory + warps * sizeof(double));
    const Entry& it = entry_of_block(p.tensors, p.num_tensors);
    const Group& group = p.groups[it.group];
    const int first = (blockIdx.x - it.first_block) * elements + threadIdx.x;
    float parameters[each], gradients[each], means[each], squares_of[each];  // loaded before the factors are known
#pragma unroll
    for (int k = 0; k < each; k++) {
        const int i = first + k * threads;
        if (i < it.size) parameters[k] = it.parameter[i], gradients[k] = it.gradient[i], means[k] = it.mean[i], squares_of[k] = it.square[i];
    }
    double squares = 0.0;
    if (p.max_norm > 0.0f) {
        for (int block = threadIdx.x; block < static_cast<int>(gridDim.x); block += threads) squares += p.squares[block];
        squares = block_sum(squares, reinterpret_cast<double*>(memory));
    }
    const auto correction = [&](double beta) { return 1.0 - pow(beta, static_cast<double>(*it.step)); };
    if (threadIdx.x == 0) {
        shared.rate = group.rate_address == nullptr ? group.rate : *group.rate_address;
        shared.step_size = static_cast<float>(shared.rate / correction(group.beta1));
        const float factor = p.max_norm / (static_cast<float>(sqrt(squares)) + 1e-6f);
        shared.clip = p.max_norm > 0.0f && !(factor >= 1.0f) ? factor : 1.0f;  // NaN stays
    } else if (threadIdx.x == 32) {  // another warp, at the same time
        shared.root_correction = static_cast<float>(sqrt(correction(group.beta2)));
    }
    __syncthreads();
    const Factors factors = shared;
    const float new_share = static_cast<float>(1.0 - group.beta1), old_share = static_cast<float>(group.beta2);
    const float new_square = static_cast<float>(1.0 - group.beta2);
#pragma unroll
    for (int k = 0; k < each; k++) {
        const int i = first + k * threads;
        if (i >= it.size) break;
        float parameter = parameters[k], gradient = gradients[k] * factors.clip;
        if (group.decoupled != 0)
            parameter -= factors.rate * group.weight_decay * parameter;
        else
            gradient = fmaf(group.weight_decay, parameter, gradient);
        const float mean = fmaf(new_share, gradient - means[k], means[k]);
        const float square = fmaf(old_share, squares_of[k], new_square * gradient * gradient);
        it.mean[i] = mean, it.square[i] = square;
        it.parameter[i] = parameter - factors.step_size * mean / (sqrtf(square) / factors.root_correction + group.eps);
    }
}
