// Adam's step for all parameters: `adam_begin` counts the step and sums the squares of the gradients, `adam_update` clips and updates.
//
// A block has `elements` numbers of one tensor. `adam_update` does not let the next kernel start early, since kernels may read weights before
// they wait. `adam_update` reads parameters and their state before it waits itself: these were written before `adam_begin` started, which starts
// when all that came before has ended. Macros: MAX_TENSORS, MAX_GROUPS.
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

__device__ __forceinline__ double beta1_of(const Group& group) { return group.beta1_address == nullptr ? group.beta1 : *group.beta1_address; }

// The corrections of the moving averages of a tensor's gradient and of its square.
__device__ __forceinline__ double* corrections_of(const Parameters& p, const Entry& it) { return p.corrections + 2 * (&it - p.tensors); }

// Counts the step and finds its corrections of the moving averages, and writes the sum of the squares of each block's gradients.
extern "C" __global__ void __launch_bounds__(threads) adam_begin(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    const Entry& it = entry_of_block(p.tensors, p.num_tensors);
    const int first = (blockIdx.x - it.first_block) * elements + threadIdx.x;
    double corrections[2];
    if (first == 0) {
        const Group& group = p.groups[it.group];
        const float step = *it.step + 1.0f;
        corrections[0] = 1.0 - pow(beta1_of(group), static_cast<double>(step));
        corrections[1] = 1.0 - pow(group.beta2, static_cast<double>(step));
        *it.step = step;
    }
    wait_for_previous();
    if (first == 0)
        for (int k = 0; k < 2; k++) corrections_of(p, it)[k] = corrections[k];
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
    float clip, rate, step_size, root_correction, new_share;
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
        if (i < it.size) parameters[k] = it.parameter[i], means[k] = it.mean[i], squares_of[k] = it.square[i];
    }
    wait_and_hold_next();
#pragma unroll
    for (int k = 0; k < each; k++)
        if (first + k * threads < it.size) gradients[k] = it.gradient[first + k * threads];
    double squares = 0.0;
    if (p.max_norm > 0.0f) {
        for (int block = threadIdx.x; block < static_cast<int>(gridDim.x); block += threads) squares += p.squares[block];
        squares = block_sum(squares, reinterpret_cast<double*>(memory));
    }
    if (threadIdx.x == 0) {
        shared.rate = group.rate_address == nullptr ? group.rate : *group.rate_address;
        shared.step_size = static_cast<float>(shared.rate / corrections_of(p, it)[0]);
        const float factor = p.max_norm / (static_cast<float>(sqrt(squares)) + 1e-6f);
        shared.clip = p.max_norm > 0.0f && !(factor >= 1.0f) ? factor : 1.0f;  // NaN stays
    } else if (threadIdx.x == 32) {  // other warps, at the same time
        shared.root_correction = static_cast<float>(sqrt(corrections_of(p, it)[1]));
    } else if (threadIdx.x == 64) {
        shared.new_share = static_cast<float>(1.0 - beta1_of(group));
    }
    __syncthreads();
    const Factors factors = shared;
    const float old_share = static_cast<float>(group.beta2), new_square = static_cast<float>(1.0 - group.beta2);
#pragma unroll
    for (int k = 0; k < each; k++) {
        const int i = first + k * threads;
        if (i >= it.size) break;
        float parameter = parameters[k], gradient = gradients[k] * factors.clip;
        if (group.decoupled != 0)
            parameter -= factors.rate * group.weight_decay * parameter;
        else
            gradient = fmaf(group.weight_decay, parameter, gradient);
        const float mean = fmaf(factors.new_share, gradient - means[k], means[k]);
        const float square = fmaf(old_share, squares_of[k], new_square * gradient * gradient);
        it.mean[i] = mean, it.square[i] = square;
        it.parameter[i] = parameter - factors.step_size * mean / (sqrtf(square) / factors.root_correction + group.eps);
    }
}
