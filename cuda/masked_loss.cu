// The loss over targets that are not missing (NaN) and its gradient, targets standardised on the way: one launch each. Macro: LOSS.
#include "masked_loss.cuh"
#include "masked_loss_structs.h"  // molgcn/ops/masked_loss.py

__device__ __forceinline__ bool difference(const Parameters& p, int i, float& d) {
    const int column = i % p.num_targets;
    const float target = p.target[i];
    d = p.prediction[i] - (target - p.mean[column]) / p.std[column];
    return target == target;
}

// One block, whose threads' sums are added in a fixed order.
extern "C" __global__ void masked_loss_forward(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(shared);
    double total = 0.0, known = 0.0;
    for (int i = threadIdx.x; i < p.count; i += blockDim.x) {
        float d;
        if (difference(p, i, d)) total += term(LOSS, d, p.delta), known += 1.0;
    }
    sum_over_block(reinterpret_cast<double*>(shared), total, known);
    if (threadIdx.x == 0) write_loss(total, known, p.sums, p.loss);
}

extern "C" __global__ void masked_loss_backward(const __grid_constant__ Parameters p) {
    const double known = p.sums[1];
    const float scale = *p.grad_loss / static_cast<float>(known < 1.0 ? 1.0 : known);
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < p.count; i += gridDim.x * blockDim.x) {
        float d;
        p.grad_prediction[i] = difference(p, i, d) ? scale * slope(LOSS, d, p.delta) : 0.0f;
    }
}
