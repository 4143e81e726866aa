// Graph attention: what forward and backward have in common.
//
// Macros beside those of row_walk.cuh: V2: scores are att . leaky(source + target + edge) as in GATv2, else leaky(source + target + edge) of
// one number a head as in GAT; EDGES; DROPOUT.
#pragma once
#include "philox.cuh"
#include "row_walk.cuh"

#include "attention_structs.h"  // molgcn/ops/attention_cuda.py

// Of a row and head, for backward: exp(score - largest) * scale is an attention weight, `mean` the weights' mean gradient.
struct alignas(16) Node {
    real largest, scale, mean, score;
};

__device__ __forceinline__ real exponential(real x) {
#if DOUBLE
    return exp(x);
#else
    return expf(x);
#endif
}
__device__ __forceinline__ real slope(const Parameters& p, real x) { return x > 0 ? real(1) : real(p.negative_slope); }

// What dropout makes of a weight: its factor, 0 or 1 / (1 - rate)
__device__ __forceinline__ real kept(const Parameters& p, int edge, int head) {
#if DROPOUT
    const Words words = philox(edge, head / 4, 0, 0, *p.seed);
    return words.word[head % 4] >= p.threshold ? real(p.kept_scale) : real(0);
#else
    return 1;
#endif
}
