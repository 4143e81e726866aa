// What forward and backward of `molgcn::gcn_stack` share: the arguments, and how weights, atoms and molecules are read.
//
// Macros: HIDDEN (H), MAX_LAYERS, PRECISION, NORM, RESIDUAL, DROPOUT, SELF_LOOPS, LAST_ACTIVATION, POOL, ALIGNED (all weights may be read 16
// bytes at a time), SAVE (keep what backward needs), WARPS and ROW_TILES (of a tile), MAX_THREADS (of a block), SHARED_GRADIENTS (a block's
// weight gradients fit in its shared memory).
#pragma once
#include "philox.cuh"
#include "tile.cuh"

#define NORM_NONE 0
#define NORM_LAYER 1
#define NORM_BATCH 2  // with running statistics: an affine map
#define POOL_MEAN 0
#define POOL_SUM 1
#define POOL_MAX 2

struct Layer {
    const float *weight, *bias, *norm_weight, *norm_bias, *mean, *variance;  // weight [out, in]
    float *grad_weight, *grad_bias, *grad_norm_weight, *grad_norm_bias;
};

struct Parameters {
    const float* x;  // [N, F]
    const int *ptr, *tile_ptr;
    Bonds bonds;
    const uint64* seed;
    float* pooled;         // [B, H]
    float* inputs;         // saved [L - 1, N, width]: input of each layer but the first
    float* normalised;     // saved [K, N, width]
    float* deviations;     // saved [K, N]: 1 / sqrt(variance + eps), layer norm only
    unsigned char* masks;  // saved [L, N, 4 mask_words]: which activations are > 0 and kept
    float* last;           // saved [N, width]: the last layer's output, pool=max only
    uint32* arrivals;      // saved [2]: of the grid's barrier
    float* scratch;        // [3, N, width]: features of large molecules
    const float* grad_pooled;
    float* grad_x;         // or null
    float* partial;        // [blocks, gradient size]
    int num_graphs, num_nodes, num_features, num_layers, num_tiles;  // with the room of padded batches
    uint32 dropout_threshold;
    float dropout_scale, eps;
    Layer layers[MAX_LAYERS];
};

constexpr int mask_bytes = (chunks + 1) / 2 * 4;  // of one node: byte 4 (p / 2) + t has the bits of columns 16 p + 4 t + e at 4 (p % 2) + e

__device__ __forceinline__ Tile find_tile(const Parameters& p, int index) {
    Tile tile;
    tile.first_graph = __ldg(p.tile_ptr + index), tile.end_graph = __ldg(p.tile_ptr + index + 1);
    tile.first_node = __ldg(p.ptr + tile.first_graph);
    tile.num_nodes = __ldg(p.ptr + tile.end_graph) - tile.first_node;
    return tile;
}

__device__ __forceinline__ bool activated(const Parameters& p, int layer) { return LAST_ACTIVATION || layer < p.num_layers - 1; }

// `count` values from `at`, zero from `limit` on; vector: all four are there or none, and 16 bytes aligned
__device__ __forceinline__ void read4(float (&v)[4], const float* at, int column, int limit, bool vector) {
    if (vector) {
        const float4 all = !padded || column < limit ? __ldg(reinterpret_cast<const float4*>(at + column)) : nothing();
        v[0] = all.x, v[1] = all.y, v[2] = all.z, v[3] = all.w;
    } else {
#pragma unroll
        for (int e = 0; e < 4; e++) v[e] = column + e < limit ? __ldg(at + column + e) : 0.0f;
    }
}

// Columns 16 p + 4 t + e of a vector [H] (bias, norm): zero where the width is padded
__device__ __forceinline__ void read_columns(float (&v)[4], const float* vector, const Group& group, int p) {
    read4(v, vector, 16 * p + 4 * group.t, HIDDEN, ALIGNED);
}

// Rows of atom features, columns base + 16 p + 4 t + e
__device__ __forceinline__ void read_atoms(float (&v)[4], const Parameters& p, int node, bool there, int column) {
#pragma unroll
    for (int e = 0; e < 4; e++) v[e] = there && column + e < p.num_features ? __ldg(p.x + size_t(node) * p.num_features + column + e) : 0.0f;
}

// Zeroes begin .. end - 1 of an array, all blocks together: what no molecule of a padded batch writes
__device__ __forceinline__ void clear(float* array, size_t begin, size_t end) {
    for (size_t i = begin + blockIdx.x * blockDim.x + threadIdx.x; i < end; i += size_t(gridDim.x) * blockDim.x) array[i] = 0.0f;
}

__device__ __forceinline__ float4 four(const float (&v)[4]) { return make_float4(v[0], v[1], v[2], v[3]); }

__device__ __forceinline__ size_t at_node(const Parameters& p, int layer, int node) {
    return (size_t(layer) * p.num_nodes + node) * width;
}
