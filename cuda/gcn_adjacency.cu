// Kernels that only aggregate: sums = Â rows, in float or double.
//
// Macros: DOUBLE, SELF_LOOPS (Â includes the identity).
#include "device.cuh"

#if DOUBLE
using real = double;
#else
using real = float;
#endif

#include "gcn_adjacency_structs.h"  // molgcn/ops/gcn_adjacency_cuda.py

__device__ __forceinline__ int num_atoms(const Parameters& p) { return __ldg(p.ptr + p.num_graphs); }

// Computes D^-1/2 of each atom.
extern "C" __global__ void __launch_bounds__(256) aggregate_prepare(const __grid_constant__ Parameters p) {
    const int num_nodes = num_atoms(p);
    for (int node = blockIdx.x * blockDim.x + threadIdx.x; node < num_nodes; node += gridDim.x * blockDim.x) {
        const int begin = __ldg(p.rowptr + node), end = __ldg(p.rowptr + node + 1);
        int degree = end - begin + SELF_LOOPS;
        for (int bond = begin; SELF_LOOPS && bond < end; bond++) degree -= __ldg(p.col + bond) == node;
        p.scale[node] = degree > 0 ? real(1) / sqrt(static_cast<real>(degree)) : real(0);
    }
}

// Each thread pulls one column of one atom from its neighbours, without atomics. Rows beyond the last atom of a padded batch are zero.
extern "C" __global__ void __launch_bounds__(256) aggregate(const __grid_constant__ Parameters p) {
    const int num_nodes = num_atoms(p);
    const size_t all = size_t(p.num_nodes) * p.num_columns;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < all; i += size_t(gridDim.x) * blockDim.x) {
        const int node = static_cast<int>(i / p.num_columns), column = static_cast<int>(i % p.num_columns);
        real sum = 0;
        if (node < num_nodes) {
            const real scale = p.scale[node];
            const int end = __ldg(p.rowptr + node + 1);
            if (SELF_LOOPS) sum = scale * scale * p.rows[i];
#pragma unroll 4
            for (int bond = __ldg(p.rowptr + node); bond < end; bond++) {
                const int source = __ldg(p.col + bond);
                if (!(SELF_LOOPS && source == node)) sum += scale * p.scale[source] * p.rows[size_t(source) * p.num_columns + column];
            }
        }
        p.sums[i] = sum;
    }
}
