// What the kernels share that only aggregate: sums = Â rows, in float or double (DOUBLE), with or without the identity in Â (SELF_LOOPS).
#pragma once
#include "device.cuh"

#if DOUBLE
using real = double;
#else
using real = float;
#endif

#include "aggregate_structs.h"  // molgcn/ops/aggregate_cuda.py

__device__ __forceinline__ int num_atoms(const Parameters& p) { return __ldg(p.ptr + p.num_graphs); }

// Entry of Â for a bond, 0 for one that the identity replaces
__device__ __forceinline__ real entry(const Parameters& p, int target, int source) {
    return SELF_LOOPS && source == target ? real(0) : p.scale[target] * p.scale[source];
}
