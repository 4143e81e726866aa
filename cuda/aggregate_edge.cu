// Strategy `edge`: a thread a bond and column, one atomic addition each, self-loops as bonds behind the others; `sums` begins as zero.
// The way of SmallGraphGCN and of fuseGNN's gather-apply-scatter.
#include "aggregate.cuh"

extern "C" __global__ void __launch_bounds__(256) aggregate_edge(const __grid_constant__ Parameters p) {
    const int num_nodes = num_atoms(p), num_bonds = __ldg(p.rowptr + num_nodes);
    const size_t all = size_t(num_bonds + SELF_LOOPS * num_nodes) * p.num_columns;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < all; i += size_t(gridDim.x) * blockDim.x) {
        const int bond = static_cast<int>(i / p.num_columns), column = static_cast<int>(i % p.num_columns);
        const bool loop = bond >= num_bonds;
        const int target = loop ? bond - num_bonds : p.target[bond], source = loop ? target : __ldg(p.col + bond);
        if (SELF_LOOPS && !loop && source == target) continue;
        const real x = p.rows[size_t(source) * p.num_columns + column];
        atomicAdd(p.sums + size_t(target) * p.num_columns + column, p.scale[target] * p.scale[source] * x);
    }
}
