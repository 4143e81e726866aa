// What the kernels share that only aggregate: sums = Â rows, in float or double (DOUBLE), with or without the identity in Â (SELF_LOOPS).
#pragma once
#include "device.cuh"

#if DOUBLE
using real = double;
#else
using real = float;
#endif

struct Parameters {
    const int *ptr, *rowptr, *col;
    int* target;            // [E]: atom that each bond points at
    real* scale;            // [N]: D^-1/2
    const int* group_node;  // [groups]: atom of each group of bonds, N for none
    const int* group_end;   // [N]: groups up to and with the atom's
    const real* rows;       // [N, columns]
    real* sums;             // [N, columns]
    int num_graphs, num_nodes, num_columns, num_groups, group_size;
};

__device__ __forceinline__ int num_atoms(const Parameters& p) { return __ldg(p.ptr + p.num_graphs); }

// Entry of Â for a bond, 0 for one that the identity replaces
__device__ __forceinline__ real entry(const Parameters& p, int target, int source) {
    return SELF_LOOPS && source == target ? real(0) : p.scale[target] * p.scale[source];
}
