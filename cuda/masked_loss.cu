// The loss over targets that are not missing (NaN) and its gradient, targets standardised on the way: one launch each.
#include "device.cuh"

struct Parameters {
    const float *prediction, *target;  // [count]
    const float *mean, *std;           // [num_targets]
    float* loss;                       // the mean over known targets, 0 without any
    double* sums;                      // [2]: sum and number of terms
    const float* grad_loss;
    float* grad_prediction;  // [count]
    int count, num_targets;
    float delta;
};

enum { mse, l1, huber };

__device__ __forceinline__ bool difference(const Parameters& p, int i, float& d) {
    const int column = i % p.num_targets;
    const float target = p.target[i];
    d = p.prediction[i] - (target - p.mean[column]) / p.std[column];
    return target == target;
}
__device__ __forceinline__ float term(float d, float delta) {
    const float size = d < 0.0f ? -d : d;
    if (LOSS == mse) return d * d;
    if (LOSS == l1) return size;
    return size < delta ? 0.5f * d * d : delta * (size - 0.5f * delta);
}
__device__ __forceinline__ float slope(float d, float delta) {
    if (LOSS == mse) return 2.0f * d;
    const float sign = d > 0.0f ? 1.0f : d < 0.0f ? -1.0f : d;  // keeps NaN
    if (LOSS == l1) return sign;
    return d < delta && d > -delta ? d : delta * sign;
}

// One block, whose threads' sums are added in a fixed order.
extern "C" __global__ void masked_loss_forward(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(shared);
    double* totals = reinterpret_cast<double*>(shared);
    double* counts = totals + blockDim.x;
    double total = 0.0;
    int known = 0;
    for (int i = threadIdx.x; i < p.count; i += blockDim.x) {
        float d;
        if (difference(p, i, d)) total += term(d, p.delta), known++;
    }
    totals[threadIdx.x] = total, counts[threadIdx.x] = known;
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) totals[threadIdx.x] += totals[threadIdx.x + half], counts[threadIdx.x] += counts[threadIdx.x + half];
    }
    if (threadIdx.x == 0) {
        p.sums[0] = totals[0], p.sums[1] = counts[0];
        *p.loss = static_cast<float>(totals[0] / (counts[0] < 1.0 ? 1.0 : counts[0]));
    }
}

extern "C" __global__ void masked_loss_backward(const __grid_constant__ Parameters p) {
    const double known = p.sums[1];
    const float scale = *p.grad_loss / static_cast<float>(known < 1.0 ? 1.0 : known);
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < p.count; i += gridDim.x * blockDim.x) {
        float d;
        p.grad_prediction[i] = difference(p, i, d) ? scale * slope(d, p.delta) : 0.0f;
    }
}
