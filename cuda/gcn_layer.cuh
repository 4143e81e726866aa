// What the kernels of the layer-at-a-time strategies share: arguments, the prepared batch, and sums over all atoms.
//
// A block works on `rows` consecutive atoms, whatever molecules they belong to. Features lie in global memory, rows of `width` floats; what a
// padded batch has beyond its last atom (ptr[num_graphs], read on the device) is neither read nor counted.
//
// Macros: HIDDEN (H), PRECISION, NORM, DROPOUT, SELF_LOOPS, POOL, and of the product WARP_ROWS, WARP_COLUMNS (a block's warps), ROW_TILES,
// COLUMN_TILES (16 x 16 blocks of a warp), MIN_BLOCKS (of a multiprocessor).
#pragma once
#include "matrix.cuh"
#include "philox.cuh"

#define NORM_NONE 0
#define NORM_LAYER 1
#define NORM_BATCH 2       // with running statistics: an affine map
#define NORM_STATISTICS 3  // batch norm in training: what follows a layer's product waits for all atoms, so the next kernel does it
#define POOL_MEAN 0
#define POOL_SUM 1
#define POOL_MAX 2

constexpr int width = (HIDDEN + 15) / 16 * 16;
constexpr int quads = width / 4;  // of four columns
constexpr int chunks = width / 16;
constexpr int depth = width < 64 ? 64 : width;             // columns of a block's rows in shared memory
constexpr int stride = depth % 32 == 0 ? depth + 16 : depth;  // two rows side by side use all banks
constexpr int warps = WARP_ROWS * WARP_COLUMNS;
constexpr int threads = 32 * warps;
constexpr int rows = 16 * ROW_TILES * WARP_ROWS;
constexpr int kinds = NORM == NORM_NONE ? 1 : NORM == NORM_STATISTICS ? 2 : 3;  // column sums of backward, see gcn_layer_backward.cu
constexpr bool statistics = NORM == NORM_STATISTICS;
constexpr int lanes = quads <= 4 ? 4 : quads <= 8 ? 8 : quads <= 16 ? 16 : 32;  // that finish a row
constexpr int turns = (quads + lanes - 1) / lanes;                              // float4 of a row in each of them
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
    const float* bias;
    const float* residual;   // [N, width]: added to the output
    float* output;           // [N, width], or null
    float* next_gradient;    // backward: [N, width], the output's through `out`, or null
    float* partial;          // [tiles, 2 or kinds, width]: sums over the atoms of a tile
    float* group_sums;       // [groups, 2 or kinds, width]
    uint32* arrivals;        // [groups + 1]
    float *pooled, *largest, *ties;  // [B, HIDDEN]; the last two [B, width], pool=max only
    const float* grad_pooled;
    float* grad_x;
    int num_graphs, num_nodes, num_features, in_width, tiles_per_group, atoms_per_part;
    uint32 dropout_threshold;
    float dropout_scale, eps, momentum;
    Activation in, out;  // what is pulled goes through `in`, the result through `out`
};

__device__ __forceinline__ float4 nothing() { return make_float4(0.0f, 0.0f, 0.0f, 0.0f); }
__device__ __forceinline__ float4 load4(const float* at) { return __ldg(reinterpret_cast<const float4*>(at)); }
__device__ __forceinline__ float4& four(float* at) { return *reinterpret_cast<float4*>(at); }
__device__ __forceinline__ void add(float4& sum, const float4& x) { sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w; }
__device__ __forceinline__ void add(float4& sum, float factor, const float4& x) {
    sum.x = fmaf(factor, x.x, sum.x), sum.y = fmaf(factor, x.y, sum.y), sum.z = fmaf(factor, x.z, sum.z), sum.w = fmaf(factor, x.w, sum.w);
}
__device__ __forceinline__ float& at(float4& x, int e) { return e == 0 ? x.x : e == 1 ? x.y : e == 2 ? x.z : x.w; }
__device__ __forceinline__ float at(const float4& x, int e) { return e == 0 ? x.x : e == 1 ? x.y : e == 2 ? x.z : x.w; }

__device__ __forceinline__ size_t at_row(int node) { return size_t(node) * width; }
__device__ __forceinline__ int num_atoms(const Parameters& p) { return __ldg(p.ptr + p.num_graphs); }

// A vector [HIDDEN] with zeros beyond
__device__ __forceinline__ float parameter(const float* vector, int column) { return column < HIDDEN ? __ldg(vector + column) : 0.0f; }

struct Moments {
    float mean, squares;  // sum of squared distances from the mean
};

// Sums of a column's distances from some value near its mean, and of their squares: one pass, without cancellation
struct Distances {
    float origin, sum = 0.0f, squares = 0.0f;

    __device__ __forceinline__ void add(float x) { sum += x - origin, squares = fmaf(x - origin, x - origin, squares); }
    __device__ __forceinline__ void add(float mean, float more, float count) {
        const float distance = mean - origin;
        sum = fmaf(count, distance, sum), squares += fmaf(count * distance, distance, more);
    }
    __device__ __forceinline__ Moments moments(int count) const {
        const float mean = sum / static_cast<float>(count > 0 ? count : 1), rest = squares - sum * mean;
        return {origin + mean, rest > 0.0f || rest != rest ? rest : 0.0f};
    }
};

__device__ __forceinline__ int parts_of(int count, int each) { return (count + each - 1) / each; }
__device__ __forceinline__ int part_size(int count, int each, int i) { return min(each, count - i * each); }

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

// Where the next kernel does not read the tiles' sums themselves: sums of groups of tiles, and of the groups, by those blocks that arrive
// last. combine(from, to, atoms, atoms of each part).
template <class Combine>
__device__ __forceinline__ void add_up(const Parameters& p, int num_nodes, int size, int* flag, Combine combine) {
    if (p.tiles_per_group == 1) return;
    const int num_tiles = parts_of(num_nodes, rows), group = blockIdx.x / p.tiles_per_group, begin = group * p.tiles_per_group;
    const int each = p.tiles_per_group * rows, groups = parts_of(num_nodes, each);
    if (!last_to_arrive(p.arrivals + group, min(p.tiles_per_group, num_tiles - begin), flag)) return;
    combine(p.partial + size_t(begin) * size, p.group_sums + size_t(group) * size, part_size(num_nodes, each, group), rows);
    if (!last_to_arrive(p.arrivals + groups, groups, flag)) return;
    combine(p.group_sums, p.out.sums, num_nodes, each);
}
__device__ __forceinline__ float* tile_sums(const Parameters& p, int size) {
    return (p.tiles_per_group == 1 ? p.out.sums : p.partial) + size_t(blockIdx.x) * size;
}
