// Kernels of molgcn::aggregate that take the edges in the order of the list: the sum by atomic additions, and the gradient of weights that
// count for several channels each.
#include "aggregate.cuh"

constexpr int block = 256, workers = block / LANES;

// LANES threads take one edge. They add its message, or backward its gradient, atomically to `sums`.
extern "C" __global__ void __launch_bounds__(block) aggregate_edges(const __grid_constant__ Parameters p) {
    for (size_t edge = size_t(blockIdx.x) * workers + threadIdx.x / LANES; edge < size_t(p.num_edges); edge += size_t(gridDim.x) * workers) {
        const int source = static_cast<int>(__ldg(p.source + edge)), target = static_cast<int>(__ldg(p.target + edge));
        const int from = BACKWARD ? target : source, to = BACKWARD ? source : target;
        const real factor = is_mean ? share_of(p, target) : real(1);
        for (int column = threadIdx.x % LANES * VEC; column < p.num_columns; column += LANES * VEC) {
            const Values w = weights_of(p, edge, column), pulled = load(p.pulled + size_t(from) * p.num_columns + column);
#pragma unroll
            for (int k = 0; k < VEC; k++) atomicAdd(p.sums + size_t(to) * p.num_columns + column + k, factor * w.v[k] * pulled.v[k]);
        }
    }
}

// LANES threads take one weight. They sum x times the gradient over the weight's channels.
extern "C" __global__ void __launch_bounds__(block) aggregate_weights(const __grid_constant__ Parameters p) {
    const int each = p.channels_per_weight, heads = p.num_columns / each;
    const size_t all = size_t(p.num_edges) * heads;
    for (size_t first = size_t(blockIdx.x) * workers; first < all; first += size_t(gridDim.x) * workers) {
        const size_t item = first + threadIdx.x / LANES, edge = item / heads;
        const bool active = item < all;
        real total = 0;
        if (active) {
            const int source = static_cast<int>(__ldg(p.source + edge)), target = static_cast<int>(__ldg(p.target + edge));
            const int begin = static_cast<int>(item - edge * heads) * each;
            for (int column = begin + threadIdx.x % LANES * VEC; column < begin + each; column += LANES * VEC) {
                const size_t at = size_t(target) * p.num_columns + column;
                const Values x = load(p.own + size_t(source) * p.num_columns + column);
#if REDUCE == 2
                const Values grad = load(p.shares + at), largest = load(p.largest + at), w = weights_of(p, edge, column);
#else
                const Values grad = load(p.pulled + at);
#endif
#pragma unroll
                for (int k = 0; k < VEC; k++) {
#if REDUCE == 2
                    if (rounded(w.v[k] * x.v[k]) != largest.v[k]) continue;
#endif
                    total += x.v[k] * grad.v[k];
                }
            }
            if (is_mean) total *= share_of(p, target);
        }
#pragma unroll
        for (int mask = 1; mask < LANES; mask *= 2) total += shuffled(total, mask);
        if (active && threadIdx.x % LANES == 0) p.grad_weight[item] = narrowed(total);
    }
}
