// What forward and backward of graph convolutions on tiles share: the arguments, and how weights, atoms and molecules are read.
//
// Macros:
//   HIDDEN (H), MAX_LAYERS, PRECISION, NORM, RESIDUAL, DROPOUT, SELF_LOOPS, LAST_ACTIVATION, POOL as in the model
//   ALIGNED            all weights may be read 16 bytes at a time
//   SAVE               forward keeps what backward needs
//   WARPS, ROW_TILES   of a tile
//   MAX_THREADS        of a block
//   WIDE_INPUT         x has more columns than `width`
//   SHARED_WEIGHTS     all weights lie in a block's shared memory
//   SHARED_GRADIENTS   a block's sums of gradients lie in its shared memory
//   INPUT_GRADIENT     the gradient of x is wanted
//   LARGE_MOLECULES    there may be molecules that are larger than a tile
//   MERGED_LEAVES      a row may stand for several atoms (see `copies_of`)
//   LOSS               the pooled rows go through a linear map into a loss
#pragma once
#include "epilogue.cuh"
#include "kinds.cuh"
#include "philox.cuh"
#include "neighbours.cuh"

__device__ __forceinline__ Tile find_tile(const Parameters& p, int index) {
    Tile tile;
    tile.index = index;
    tile.first_graph = __ldg(p.tile_ptr + index), tile.end_graph = __ldg(p.tile_ptr + index + 1);
    tile.first_node = __ldg(p.ptr + tile.first_graph);
    tile.num_nodes = __ldg(p.ptr + tile.end_graph) - tile.first_node;
    return tile;
}

// Returns whether a tile has more atoms than `tile_rows` though the caller says that none has. Such a tile must harm nobody else's memory.
__device__ __forceinline__ bool breaks_promise(const Tile& tile) { return !LARGE_MOLECULES && tile.num_nodes > tile_rows; }
// Writes NaN to the numbers begin .. end - 1 of an array, which belong to the molecules of such a tile.
__device__ __forceinline__ void fill_nan(float* array, size_t begin, size_t end, const Group& group) {
    for (size_t i = begin + 32 * group.warp + group.lane; i < end; i += 32 * WARPS) array[i] = number(0x7fffffffu);
}
// Returns an empty tile instead of one that breaks the promise of `large_molecules`.
__device__ __forceinline__ Tile without_molecules(const Tile& tile) { return {tile.index, tile.first_graph, tile.first_graph, tile.first_node, 0}; }

// Returns whether a tile exists and holds molecules. The last tiles of a padded batch, whose molecules end at `end`, are empty.
__device__ __forceinline__ bool is_filled(const Parameters& p, int index, int end) { return index < p.num_tiles && __ldg(p.tile_ptr + index) < end; }

__device__ __forceinline__ bool activated(const Parameters& p, int layer) { return LAST_ACTIVATION || layer < p.num_layers - 1; }

// Masks hold a lane's activations [m][half][column] in words, the first in the highest bit. A strip is `tile_rows` rows of a tile. Where the
// words are full, their order does not depend on how many warps share the rows.
constexpr int mask_bits = ROW_TILES * 2 * spans * own, mask_words = (mask_bits + 31) / 32;
__device__ __forceinline__ size_t mask_at(const Parameters& p, const Group& group, const Tile& tile, int first_row, int layer) {
    const int strips = 2 * p.num_tiles + p.num_nodes / tile_rows + 1;
    const int strip = !LARGE_MOLECULES || tile.num_nodes <= tile_rows ? tile.index : p.num_tiles + tile.first_node / tile_rows + tile.index + first_row / tile_rows;
    return ((size_t(layer) * strips + strip) * WARPS + group.warp) * (mask_words * 32) + group.lane;
}

// Reads `count` values from `at`, and zeros from `limit` on. With `vector` either all four or none are there, and they are 16-byte aligned.
__device__ __forceinline__ void read4(float* v, const float* at, int column, int limit, bool vector) {
    if (vector) {
        const float4 all = column < limit ? __ldg(reinterpret_cast<const float4*>(at + column)) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        v[0] = all.x, v[1] = all.y, v[2] = all.z, v[3] = all.w;
    } else {
#pragma unroll
        for (int e = 0; e < 4; e++) v[e] = column + e < limit ? __ldg(at + column + e) : 0.0f;
    }
}

// Reads the lane's columns of span b of a vector [H] (bias, norm), and zeros where the width is padded.
__device__ __forceinline__ void read_columns(float (&v)[own], const float* vector, const Group& group, int b) {
#pragma unroll
    for (int i = 0; i < own; i += 4) read4(v + i, vector, span * b + own * group.t + i, padded ? HIDDEN : width, ALIGNED);
}

// Returns the address of the lane's columns of span b in an atom's row of [N, width] in float32.
__device__ __forceinline__ float* row_columns(float* array, const Group& group, int node, int b) {
    return array + size_t(node) * width + span * b + own * group.t;
}

// The width and the address of the saved rows of pulled features.
__device__ __forceinline__ int wide_width(const Parameters& p) { return (p.num_features + 31) / 32 * 32; }
__device__ __forceinline__ int in_width(const Parameters& p, int layer) { return WIDE_INPUT && layer == 0 ? wide_width(p) : width; }
__device__ __forceinline__ unsigned char* pulled_rows(const Parameters& p, const Tile& tile, int layer) {
    if (WIDE_INPUT && layer == 0) return p.wide_pulled + size_t(tile.first_node) * wide_width(p) * number_bytes;
    return p.pulled + (size_t(layer) * p.num_nodes + tile.first_node) * row_bytes;
}

// Zeroes the numbers begin .. end - 1 of an array, which no molecule of a padded batch writes. All blocks share the work.
__device__ __forceinline__ void clear(float* array, size_t begin, size_t end) {
    for (size_t i = begin + blockIdx.x * blockDim.x + threadIdx.x; i < end; i += size_t(gridDim.x) * blockDim.x) array[i] = 0.0f;
}
// Zeroes the row that stands for missing neighbours, at the start of a block.
__device__ __forceinline__ void clear_last_row(const Group& group, unsigned char* buffer) {
    for (int i = 4 * (32 * group.warp + group.lane); i < stride; i += 4 * 32 * WARPS) *reinterpret_cast<uint32*>(buffer + tile_rows * stride + i) = 0;
    group.sync();
}

// sum += (A + I) (buffer) W for the contracted columns of span b. weights(j) returns what the lane has of W for column tile j, own_row(m,
// half) a segment of I (buffer). see(m, half, pulled) receives each pulled segment.
template <bool large, class Weights, class OwnRow, class See>
__device__ __forceinline__ void multiply_pulled(Features& sum, const Neighbours<large>& neighbours, const unsigned char* buffer, const Parameters& p,
                                                const Tile& tile, const Group& group, int b, Weights weights, OwnRow own_row, See see) {
    decltype(weights(0)) w[side];
#pragma unroll
    for (int j = 0; j < side; j++) w[j] = weights(j);  // under way while neighbours are pulled
    Right right_side[side];
#pragma unroll
    for (int m0 = 0; m0 < ROW_TILES; m0 += pair) {
        Segment pulled[pair][2];
#pragma unroll
        for (int i = 0; i < 2 * pair && m0 + i / 2 < ROW_TILES; i++) pulled[i / 2][i % 2] = own_row(m0 + i / 2, i % 2);
        neighbours.pull(pulled, buffer, p.bonds, tile, group, b, m0);
#pragma unroll
        for (int i = 0; i < 2 * pair && m0 + i / 2 < ROW_TILES; i++) see(m0 + i / 2, i % 2, pulled[i / 2][i % 2]);
#pragma unroll
        for (int first_tile = 0; first_tile < column_tiles; first_tile += side) {
#pragma unroll
            for (int j = 0; j < side; j++)
                if (column_tiles > side || m0 == 0) right_side[j] = right(w[j]);
            if (column_tiles > side && (m0 + pair < ROW_TILES || first_tile + side < column_tiles))
#pragma unroll
                for (int j = 0; j < side; j++) w[j] = weights((first_tile + side) % column_tiles + j);
#pragma unroll
            for (int i = 0; i < pair && m0 + i < ROW_TILES; i++)
                multiply_add([&](int j) -> float(&)[4] { return sum.v[m0 + i][first_tile + j]; }, left(pulled[i]), right_side);
        }
    }
}
