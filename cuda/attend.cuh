// What attention on any graph and on molecules share: scores, their softmax, and dropout's factors.
//
// An entry of a row has the weight w = exp(score - largest) * scale and dropout's factor k; its row has the gradient g. The gradient of the
// score is w (k g . source - mean), where mean is the sum of w k g . source over the entries, and that of the source is w k g. The score's
// gradient then goes to what the score was computed from.
#pragma once
#include "philox.cuh"
#include "row_walk.cuh"

__device__ __forceinline__ real exponential(real x) {
#if DOUBLE
    return exp(x);
#else
    return expf(x);
#endif
}
__device__ __forceinline__ real minus_infinity() { return number(0xff800000u); }
__device__ __forceinline__ real slope_at(real x, real negative_slope) { return x > 0 ? real(1) : negative_slope; }

// What backward needs of a row's head: the largest score and the reciprocal of the sum, the weights' mean gradient, and what the target adds to
// GAT's scores.
struct alignas(16) Node {
    real largest, scale, mean, score;
};

// Returns dropout's factor of a head's weight in a row: 0 or `kept_scale`.
__device__ __forceinline__ real factor_of(uint32 row, int head, uint32 site, uint32 kind, uint64 seed, uint32 threshold, real kept_scale) {
    return philox(row, head / 4, site, kind, seed).word[head % 4] >= threshold ? kept_scale : real(0);
}

// A softmax and its weighted sum so far, both relative to the largest score so far.
struct WeightedSum {
    real largest = minus_infinity(), total = 0;
    Columns columns = {};

    // Prepares the sums for a score. If it is the new largest, the sums are scaled down to it.
    __device__ __forceinline__ void raise(real score) {
        if (!(score > largest)) return;
        const real factor = exponential(largest - score);
        largest = score;
        total *= factor;
        each_column([&](int r, int v) { columns.at[r].of[v] *= factor; });
    }
    // Adds an entry whose score has been raised to.
    __device__ __forceinline__ void add(real score, real factor, const Columns& x) {
        const real weight = exponential(score - largest), used = weight * factor;
        total += weight;
        each_column([&](int r, int v) { columns.at[r].of[v] += used * x.at[r].of[v]; });
    }
    // Divides by the total and returns its reciprocal, or 0 where there were no entries.
    __device__ __forceinline__ real finish() {
        const real scale = total == 0 ? real(0) : 1 / total;
        each_column([&](int r, int v) { columns.at[r].of[v] *= scale; });
        return scale;
    }
};
