// What the kernels of the layer-at-a-time strategies share: arguments, the prepared batch, and sums over all atoms.
//
// A block works on `rows` consecutive atoms, whatever molecules they belong to. Features lie in global memory, rows of `width` floats; what a
// padded batch has beyond its last atom (ptr[num_graphs], read on the device) is neither read nor counted.
//
// Macros: HIDDEN (H), PRECISION, NORM, DROPOUT, SELF_LOOPS, POOL, INPUT_GRADIENT (backward: wanted), and of the product WARP_ROWS,
// WARP_COLUMNS (a block's warps), ROW_TILES, COLUMN_TILES (16 x 16 blocks of a warp), MIN_BLOCKS (of a multiprocessor).
#pragma once
#include "gcn_layer_basics.cuh"

constexpr int depth = width < 64 ? 64 : width;             // columns of a block's rows in shared memory
constexpr int stride = depth % 32 == 0 ? depth + 16 : depth;  // two rows side by side use all banks
constexpr int warps = WARP_ROWS * WARP_COLUMNS;
constexpr int threads = 32 * warps;
constexpr int rows = 16 * ROW_TILES * WARP_ROWS;
constexpr int kinds = NORM == NORM_NONE ? 1 : NORM == NORM_STATISTICS ? 2 : 3;  // column sums of backward, see gcn_layer_backward.cu
constexpr bool statistics = NORM == NORM_STATISTICS;
constexpr int teams = threads / lanes;
constexpr int shares = threads < quads ? 1 : threads / quads;                   // threads that share a quad's sums

struct Activation {  // norm, relu and dropout of one layer
    const float *weight, *bias;     // of the norm
    const float *mean, *variance;   // running
    float *new_mean, *new_variance;
    float* raw;            // [N, width]: the norm's input
    float* moments;        // 1 / deviation and mean: of an atom [N, 2] (layer), of a column [2, width] (batch statistics)
    unsigned char* masks;  // [N, quads]: bit e, column 4 q + e is kept and, except with batch statistics, > 0
    float* sums;           // [parts, 2 or kinds, width]: over `atoms_per_part` atoms each
    float *grad_weight, *grad_bias, *grad_layer_bias;
    int layer, on;         // on: the layer has them
};

struct Parameters {
    const int *ptr, *rowptr, *col;
    int4* sources;     // [N]: of an atom's first four bonds
    float4* factors;   // [N]: their entries of Â; zero: no bond
    float* scale;      // [N]: D^-1/2
    int* graph;        // [N]: molecule of each atom
    const uint64* seed;
    const float* input;      // forward: [N, in_width], the layer's input, or where it waits for statistics the residual's part, or null
    const float* gradient;   // backward: [N, width], of the product and bias, or where it waits of the layer's output
    float* kept;             // [N, width], made here for later: forward the layer's input, backward G = Â dZ
    const float* fragments;  // the weight as operands of the product (gcn_layer_prepare.cu)
    const float* scales;     // of their columns
    const float* bias;
    const float* residual;   // [N, width]: added to the output
    float* output;           // [N, width], or null
    float* next_gradient;    // backward: [N, width], the output's through `out`, or null
    float* partial;          // [tiles, 2 or kinds, width]: sums over the atoms of a tile
    float* group_sums;       // [groups, 2 or kinds, width]
    uint32* arrivals;        // [groups + 1]
    float *pooled, *largest, *ties;  // [B, HIDDEN]; the last two [B, width], pool=max only
    const float* grad_pooled;
    float* grad_x;           // [N, F], with INPUT_GRADIENT, of the first layer
    int num_graphs, num_nodes, num_features, in_width, tiles_per_group, atoms_per_part;
    uint32 dropout_threshold;
    float dropout_scale, eps, momentum;
    Activation in, out;  // what is pulled goes through `in`, the result through `out`
};

__device__ __forceinline__ int num_atoms(const Parameters& p) { return __ldg(p.ptr + p.num_graphs); }

// Whether this block is the last of `size` to arrive; the order of the sums then decides, not that of the blocks.
__device__ __forceinline__ bool last_to_arrive(uint32* arrivals, int size, int* flag) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) *flag = atomicAdd(arrivals, 1u) == static_cast<uint32>(size - 1);
    __syncthreads();
    const bool last = *flag;
    if (last) __threadfence();
    return last;
}

// Where the next kernel does not read the blocks' sums themselves, of `atoms` each: sums of groups of blocks, and of the groups, by those
// blocks that arrive last. combine(from, to, atoms, atoms of each part).
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
