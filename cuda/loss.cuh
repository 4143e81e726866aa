// The losses over targets that are not missing: their terms, and sums in a fixed order. A new loss is one line in `term` and one in
// `derivative`.
#pragma once
#include "device.cuh"

enum { mse, l1, huber };

// Returns the term that a prediction and its target add to the loss.
__device__ __forceinline__ float term(int loss, float prediction, float target, float delta) {
    const float d = prediction - target, size = d < 0.0f ? -d : d;
    if (loss == mse) return d * d;
    if (loss == l1) return size;
    return size < delta ? 0.5f * d * d : delta * (size - 0.5f * delta);
}
// Returns the term's derivative by the prediction.
__device__ __forceinline__ float derivative(int loss, float prediction, float target, float delta) {
    const float d = prediction - target;
    if (loss == mse) return 2.0f * d;
    const float sign = d > 0.0f ? 1.0f : d < 0.0f ? -1.0f : d;  // keeps NaN
    if (loss == l1) return sign;
    return d < delta && d > -delta ? d : delta * sign;
}

// Writes sums = {total, known} and the mean. One thread calls it.
__device__ __forceinline__ void write_loss(double total, double known, double* sums, float* loss) {
    sums[0] = total, sums[1] = known;
    *loss = static_cast<float>(total / (known < 1.0 ? 1.0 : known));
}
// Adds both sums up over a block of whole warps, in a fixed order, at thread 0. `shared` has two doubles for each warp.
__device__ __forceinline__ void sum_over_block(double* shared, double& total, double& known) {
    const auto sum_over_warp = [&] {
        for (int mask = 16; mask > 0; mask /= 2) total += shuffle_xor(total, mask), known += shuffle_xor(known, mask);
    };
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    sum_over_warp();
    if (lane == 0) shared[threadIdx.x / 16] = total, shared[threadIdx.x / 16 + 1] = known;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    total = lane < warps ? shared[2 * lane] : 0.0, known = lane < warps ? shared[2 * lane + 1] : 0.0;
    sum_over_warp();
}
// Adds a loss up over a block, and writes it, or the block's sums into `terms` where there are several blocks.
__device__ __forceinline__ void leave_loss(double* shared, double total, double known, double* terms, double* sums, float* loss) {
    sum_over_block(shared, total, known);
    if (threadIdx.x != 0) return;
    if (gridDim.x == 1)
        write_loss(total, known, sums, loss);
    else
        terms[2 * blockIdx.x] = total, terms[2 * blockIdx.x + 1] = known;
}
// Returns the factor of every derivative: the weight of a term in the loss, times the loss's own gradient.
__device__ __forceinline__ float loss_scale(const double* sums, const float* grad_loss) {
    const double known = sums[1];
    return *grad_loss / static_cast<float>(known < 1.0 ? 1.0 : known);
}
