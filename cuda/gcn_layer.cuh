// What the kernels of the layer-at-a-time strategies share: arguments, the prepared batch, and sums over all atoms.
//
// A block works on `rows` consecutive atoms, whatever molecules they belong to. Features lie in global memory, in rows of `width` floats.
// Rows beyond the last atom of a padded batch (ptr[num_graphs], read on the device) are neither read nor counted.
//
// Macros: HIDDEN (H), PRECISION, NORM, DROPOUT, SELF_LOOPS, POOL, INPUT_GRADIENT (backward computes the gradient of x).
// Macros of the product: WARP_ROWS and WARP_COLUMNS (warps of a block), ROW_TILES and COLUMN_TILES (16 x 16 blocks of a warp), MIN_BLOCKS
// (on a multiprocessor).
#pragma once
#include "arrivals.cuh"
#include "gcn_layer_basics.cuh"

constexpr int depth = width < 64 ? 64 : width;             // columns of a block's rows in shared memory
constexpr int stride = depth % 32 == 0 ? depth + 16 : depth;  // two rows side by side use all banks
constexpr int warps = WARP_ROWS * WARP_COLUMNS;
constexpr int threads = 32 * warps;
constexpr int rows = 16 * ROW_TILES * WARP_ROWS;
constexpr int kinds = NORM == NORM_NONE ? 1 : NORM == NORM_STATISTICS ? 2 : 3;  // column sums of backward (gcn_layer_backward.cu)
constexpr bool statistics = NORM == NORM_STATISTICS;
constexpr int teams = threads / lanes;
constexpr int shares = threads < quads ? 1 : threads / quads;                   // threads that share a quad's sums

#include "gcn_layer_structs.h"  // molgcn/ops/gcn_layers_arguments.py

__device__ __forceinline__ int num_atoms(const Parameters& p) { return __ldg(p.ptr + p.num_graphs); }

// Merges the blocks' sums, of `atoms` atoms each, in two levels, where the next kernel does not read them one by one. The last block of
// each group to arrive merges the group, and the last of these merges the groups. combine(from, to, atoms, atoms of each part) does one
// merge.
template <class Combine>
__device__ __forceinline__ void add_up(const Parameters& p, int num_nodes, int size, int* flag, Combine combine, int atoms = rows) {
    if (p.tiles_per_group == 1) return;
    const int num_tiles = parts_of(num_nodes, atoms), group = blockIdx.x / p.tiles_per_group, begin = group * p.tiles_per_group;
    const int each = p.tiles_per_group * atoms, groups = parts_of(num_nodes, each);
    if (!last_to_arrive(p.arrivals + group, min(p.tiles_per_group, num_tiles - begin), flag)) return;
    combine(p.partial + size_t(begin) * size, p.group_sums + size_t(group) * size, part_size(num_nodes, each, group), atoms);
    if (!last_to_arrive(p.arrivals + groups, groups, flag)) return;
    combine(p.group_sums, p.out.sums, num_nodes, each);
}
__device__ __forceinline__ float* tile_sums(const Parameters& p, int size) {
    return (p.tiles_per_group == 1 ? p.out.sums : p.partial) + size_t(blockIdx.x) * size;
}
