// What the forward and the backward kernels of graph attention share.
//
// Macros besides those of row_walk.cuh:
//   V2        scores are att . leaky(source + target + edge), as in GATv2; else they are leaky(source + target + edge) of one number
//             per head, as in GAT
//   EDGES     the edges have features
//   DROPOUT   attention weights are dropped
#pragma once
#include "attend.cuh"
#include "attention_structs.h"  // molgcn/ops/attention_cuda.py

__device__ __forceinline__ real slope(const Parameters& p, real x) { return slope_at(x, real(p.negative_slope)); }

// Returns dropout's factor of an attention weight: 0 or 1 / (1 - rate).
__device__ __forceinline__ real kept(const Parameters& p, int edge, int head) {
#if DROPOUT
    return factor_of(edge, head, 0, 0, *p.seed, p.threshold, real(p.kept_scale));
#else
    return 1;
#endif
}
