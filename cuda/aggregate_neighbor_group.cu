// Strategy `neighbor_group`: a warp a group of an atom's bonds, their sources and factors and the warp's partial sums in shared memory, one
// atomic addition a group and column; `sums` begins as zero. The way of GNNAdvisor (Wang et al., OSDI 2021, sections 4 and 5).
#include "aggregate.cuh"

constexpr int warps = 8, columns = 128;  // of a block; of a warp's partial sums at a time

extern "C" __global__ void __launch_bounds__(32 * warps) aggregate_neighbor_group(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = blockIdx.x * warps + warp;
    real* partial = reinterpret_cast<real*>(memory) + warp * columns;
    real* factor = reinterpret_cast<real*>(memory) + warps * columns + warp * p.group_size;
    int* source = reinterpret_cast<int*>(reinterpret_cast<real*>(memory) + warps * (columns + p.group_size)) + warp * p.group_size;
    const int num_nodes = num_atoms(p), node = group < p.num_groups ? p.group_node[group] : p.num_nodes;
    if (node >= num_nodes) return;
    const int number = group - (node > 0 ? p.group_end[node - 1] : 0);  // of the atom's groups
    const int begin = __ldg(p.rowptr + node) + number * p.group_size, end = min(begin + p.group_size, __ldg(p.rowptr + node + 1));
    for (int i = lane; i < end - begin; i += 32) {
        source[i] = __ldg(p.col + begin + i);
        factor[i] = entry(p, node, source[i]);
    }
    __syncwarp();
    const bool own = SELF_LOOPS && number == 0;
    const real self = p.scale[node] * p.scale[node];
    for (int base = 0; base < p.num_columns; base += columns) {
        const int limit = min(columns, p.num_columns - base);
        for (int column = lane; column < limit; column += 32)
            partial[column] = own ? self * p.rows[size_t(node) * p.num_columns + base + column] : real(0);
        for (int i = 0; i < end - begin; i++) {
            const real* row = p.rows + size_t(source[i]) * p.num_columns + base;
            if (!(SELF_LOOPS && source[i] == node))
                for (int column = lane; column < limit; column += 32) partial[column] += factor[i] * row[column];
        }
        for (int column = lane; column < limit; column += 32)
            atomicAdd(p.sums + size_t(node) * p.num_columns + base + column, partial[column]);
    }
}
