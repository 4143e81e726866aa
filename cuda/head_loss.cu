// A linear map, the loss of its predictions over targets that are not missing (NaN), and the gradients of its input, weight and bias.
// masked_loss_forward is the loss alone, without a map.
//
// Macro: TARGETS (that a block of backward sums at a time).
#include "loss.cuh"
#include "head_loss_structs.h"  // molgcn/ops/head_loss_cuda.py

enum {
    LANES = 8,    // threads that compute a molecule's predictions,
    WIDE = 8,     // as many columns at a time
    COLUMNS = 4,  // of the weight's gradient that a block sums,
    ROWS = 16,    // as many molecules at a time
};

// Computes predictions, derivatives and partial sums, with eight lanes for each molecule.
extern "C" __global__ void __launch_bounds__(1024, 1) linear_loss_forward(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(shared);
    wait_for_previous();
    const int lane = threadIdx.x % LANES, step = gridDim.x * blockDim.x / LANES;
    double total = 0.0, known = 0.0;
    for (int first = (blockIdx.x * blockDim.x + threadIdx.x) / 32 * (32 / LANES); first < p.num_graphs; first += step) {
        const int row = first + threadIdx.x % 32 / LANES;
        const bool exists = row < p.num_graphs;  // all lanes of a warp go on to the shuffles
        const float* x = p.x + static_cast<long long>(exists ? row : first) * p.width;
        for (int t = 0; t < p.num_targets; ++t) {
            const long long index = static_cast<long long>(row) * p.num_targets + t;
            const float target = exists ? p.target[index] : 0.0f, mean = p.mean[t], std = p.std[t], bias = p.bias[t];
            float prediction = 0.0f;
            for (int first_column = lane; first_column < p.width; first_column += WIDE * LANES) {
                float values[WIDE], weights[WIDE];
#pragma unroll
                for (int k = 0; k < WIDE; ++k) {
                    const int column = first_column + k * LANES;
                    const bool inside = column < p.width;
                    values[k] = inside ? __ldg(x + column) : 0.0f, weights[k] = inside ? __ldg(p.weight + t * p.width + column) : 0.0f;
                }
#pragma unroll
                for (int k = 0; k < WIDE; ++k) prediction += values[k] * weights[k];
            }
            for (int mask = LANES / 2; mask > 0; mask /= 2) prediction += shuffle_xor(prediction, mask);
            if (lane != t % LANES || !exists) continue;
            const float output = prediction + bias, standard = (target - mean) / std;
            const bool there = target == target;
            p.derivatives[index] = there ? derivative(p.kind, output, standard, p.delta) : 0.0f;
            if (there) total += term(p.kind, output, standard, p.delta), known += 1.0;
        }
    }
    leave_loss(reinterpret_cast<double*>(shared), total, known, p.partial, p.sums, p.loss);
}

// Adds up the sums of all blocks, in one block.
__device__ __forceinline__ void sum_up(const Parameters& p, double* shared) {
    double total = 0.0, known = 0.0;
    for (int i = threadIdx.x; i < p.num_partial; i += blockDim.x) total += p.partial[2 * i], known += p.partial[2 * i + 1];
    sum_over_block(shared, total, known);
    if (threadIdx.x == 0) write_loss(total, known, p.sums, p.loss);
}
extern "C" __global__ void __launch_bounds__(512) linear_loss_sums(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(shared);
    wait_for_previous();
    sum_up(p, reinterpret_cast<double*>(shared));
}

// Writes `factor` times the sums over all molecules of derivatives times x, for TARGETS targets and COLUMNS columns. The column after the
// last is one: it gives the bias.
__device__ __forceinline__ void grad_columns(const Parameters& p, float* shared, int block, float factor) {
    const int chunks = p.width / COLUMNS + 1, first_column = block % chunks * COLUMNS, first_target = block / chunks * TARGETS;
    const int column = first_column + threadIdx.x % COLUMNS, lane = threadIdx.x / COLUMNS, lanes = blockDim.x / COLUMNS;
    const int targets = min(TARGETS, p.num_targets - first_target);
    float total[TARGETS] = {};
    for (int first = lane; first < p.num_graphs; first += ROWS * lanes) {
        long long rows[ROWS];  // at most the last: no branches, so that all loads are under way at a time
        float x[ROWS];
#pragma unroll
        for (int k = 0; k < ROWS; ++k) {
            const int row = first + k * lanes;
            rows[k] = min(row, p.num_graphs - 1);
            x[k] = p.x[rows[k] * p.width + min(column, p.width - 1)];
            x[k] = row >= p.num_graphs ? 0.0f : column < p.width ? x[k] : 1.0f;
        }
#pragma unroll
        for (int t = 0; t < TARGETS; ++t) {
            const float* derivatives = p.derivatives + first_target + min(t, targets - 1);
#pragma unroll
            for (int k = 0; k < ROWS; ++k) total[t] += x[k] * derivatives[rows[k] * p.num_targets];
        }
    }
#pragma unroll
    for (int t = 0; t < TARGETS; ++t) {
        if (t >= targets) break;
        __syncthreads();
        shared[threadIdx.x] = total[t];
        for (int half = lanes / 2; half > 0; half /= 2) {
            __syncthreads();
            if (lane < half) shared[threadIdx.x] += shared[threadIdx.x + half * COLUMNS];
        }
        if (lane != 0 || column > p.width) continue;
        const int target = first_target + t;
        float* out = column < p.width ? p.grad_weight + target * p.width + column : p.grad_bias + target;
        *out = factor * shared[threadIdx.x];
    }
}

// Computes the gradients. The first blocks sum those of weight and bias, the others compute that of x.
extern "C" __global__ void __launch_bounds__(512, TARGETS == 1 ? 2 : 1) linear_loss_backward(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(shared);
    wait_for_previous();
    const int chunks = p.width / COLUMNS + 1, summing = chunks * ((p.num_targets + TARGETS - 1) / TARGETS);
    if (blockIdx.x < summing) {
        grad_columns(p, reinterpret_cast<float*>(shared), blockIdx.x, loss_scale(p.sums, p.grad_loss));
        return;
    }
    const int threads = (gridDim.x - summing) * blockDim.x, thread = (blockIdx.x - summing) * blockDim.x + threadIdx.x;
    const int rows_ahead = threads / p.width, columns_ahead = threads % p.width;  // no division for each number
    const float factor = loss_scale(p.sums, p.grad_loss);
    for (int row = thread / p.width, column = thread % p.width; row < p.num_graphs; row += rows_ahead, column += columns_ahead) {
        if (column >= p.width) {
            column -= p.width;
            if (++row >= p.num_graphs) break;
        }
        const float* derivatives = p.derivatives + size_t(row) * p.num_targets;
        float sum = 0.0f;
        for (int t = 0; t < p.num_targets; ++t) sum += derivatives[t] * p.weight[t * p.width + column];
        p.grad_x[size_t(row) * p.width + column] = factor * sum;
    }
}

// Ends a forward pass whose derivatives and partial sums another kernel has computed. The last block adds these up. The others compute the
// gradients of weight and bias, without the loss's own gradient and the number of terms.
extern "C" __global__ void __launch_bounds__(512) linear_loss_ends(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(shared);
    wait_for_previous();
    if (blockIdx.x == gridDim.x - 1)
        sum_up(p, reinterpret_cast<double*>(shared));
    else
        grad_columns(p, reinterpret_cast<float*>(shared), blockIdx.x, 1.0f);
}

// Computes the loss without a map: x are the predictions. There is one block, whose threads' sums are added in a fixed order.
extern "C" __global__ void masked_loss_forward(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(shared);
    double total = 0.0, known = 0.0;
    for (int i = threadIdx.x; i < p.num_graphs * p.num_targets; i += blockDim.x) {
        const int t = i % p.num_targets;
        const float target = p.target[i], standard = (target - p.mean[t]) / p.std[t];
        const bool there = target == target;
        p.derivatives[i] = there ? derivative(p.kind, p.x[i], standard, p.delta) : 0.0f;
        if (there) total += term(p.kind, p.x[i], standard, p.delta), known += 1.0;
    }
    sum_over_block(reinterpret_cast<double*>(shared), total, known);
    if (threadIdx.x == 0) write_loss(total, known, p.sums, p.loss);
}
extern "C" __global__ void masked_loss_backward(const __grid_constant__ Parameters p) {
    const float factor = loss_scale(p.sums, p.grad_loss);
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < p.num_graphs * p.num_targets; i += gridDim.x * blockDim.x)
        p.grad_x[i] = factor * p.derivatives[i];
}
