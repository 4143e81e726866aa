// Strategy `vertex`: a thread an atom and column pulls from the neighbours. No atomics; beyond the last atom of a padded batch zero.
#include "aggregate.cuh"

extern "C" __global__ void __launch_bounds__(256) aggregate_vertex(const __grid_constant__ Parameters p) {
    const int num_nodes = num_atoms(p);
    const size_t all = size_t(p.num_nodes) * p.num_columns;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < all; i += size_t(gridDim.x) * blockDim.x) {
        const int node = static_cast<int>(i / p.num_columns), column = static_cast<int>(i % p.num_columns);
        real sum = 0;
        if (node < num_nodes) {
            const int end = __ldg(p.rowptr + node + 1);
            if (SELF_LOOPS) sum = p.scale[node] * p.scale[node] * p.rows[i];
#pragma unroll 4
            for (int bond = __ldg(p.rowptr + node); bond < end; bond++) {
                const int source = __ldg(p.col + bond);
                if (!(SELF_LOOPS && source == node)) sum += entry(p, node, source) * p.rows[size_t(source) * p.num_columns + column];
            }
        }
        p.sums[i] = sum;
    }
}
