// A tile: consecutive whole molecules on `tile_rows` rows. A group of WARPS warps of one block works on it.
//
// A warp owns ROW_TILES * 16 rows, in the layout of fragments.cuh. Their features lie in a buffer in shared memory from which all warps of
// the group pull neighbours. A molecule with more than `tile_rows` atoms is a tile by itself. Its features lie in global memory (`large`) in
// the same layout, and the group walks over it `tile_rows` rows at a time.
#pragma once
#include "fragments.cuh"
#include "gcn_tile_structs.h"  // molgcn/ops/gcn_tile_arguments.py

constexpr bool scarce = ROW_TILES >= 4;  // registers are scarce
constexpr int tile_rows = 16 * ROW_TILES * WARPS;
constexpr bool six_row_tiles = WARPS == 2 && ROW_TILES == 3;
// Limits an atom's number to the tile, whatever the batch's bonds say.
__device__ __forceinline__ int inside(int atom) {
    if constexpr ((tile_rows & (tile_rows - 1)) == 0) return atom & (tile_rows - 1);
    return static_cast<int>(min(static_cast<uint32>(atom), static_cast<uint32>(tile_rows - 1)));
}
constexpr int row_bytes = width * number_bytes;
constexpr int stride = row_bytes;
constexpr int offset_unit = (tile_rows + 1) * stride > 0x10000 ? 16 : 1;  // unit of a neighbour's 16-bit offset
constexpr int rows_bytes = (tile_rows + 1) * stride;                   // the last row is zero and stands for missing neighbours
constexpr int table_bytes = (11 + 2 * MERGED_LEAVES) * tile_rows;          // the tile's `Table` lies behind the rows
constexpr int buffer_bytes = (rows_bytes + table_bytes + 127) / 128 * 128;  // whole lines: copies to what lies behind are then quicker

struct Tile {
    int index, first_graph, end_graph, first_node, num_nodes;
};

// The swizzle puts piece `piece` (16 bytes) of a row at index swizzled(row, piece). It keeps two kinds of accesses free of bank conflicts:
// adjacent pieces of a row (products over features) and equal pieces of eight rows (products over nodes).
__device__ __forceinline__ int swizzle(int row) {
    if (width < 32) return 0;
    return packed ? row >> 1 & 3 : ((row ^ row >> 2) & 1) << 2 | (row & 2);
}
__device__ __forceinline__ int swizzled(int row, int piece) { return piece ^ swizzle(row); }
// Returns the offset of a lane's first segment of a row, in bytes.
__device__ __forceinline__ size_t segment_offset(int row, int t) {
    return size_t(row) * stride + (own * number_bytes == 16 ? 16 * swizzled(row, t) : 8 * t);
}
constexpr int flip = packed || width < 32 ? 0 : 64;  // swizzles odd spans
__device__ __forceinline__ int span_bytes(int b) { return packed || width < 32 ? span * number_bytes * b : 128 * (b >> 1); }
template <class Offset>
__device__ __forceinline__ Offset at_span(Offset offset, int b) {
    return (offset ^ static_cast<Offset>(b & 1 ? flip : 0)) + static_cast<Offset>(span_bytes(b));
}

// Four adjacent numbers of the row that lies at `begin` for lanes with t = 0.
struct alignas(4 * number_bytes) Four {
    uint32 word[number_bytes];
};
__device__ __forceinline__ Four* four_at(unsigned char* buffer, size_t begin, int column) {
    return reinterpret_cast<Four*>(buffer + at_span(begin ^ segment_offset(0, column % span / own), column / span) + column % own * number_bytes);
}
__device__ __forceinline__ void get4(float (&x)[4], const unsigned char* buffer, size_t begin, int column) {
    const Four all = *four_at(const_cast<unsigned char*>(buffer), begin, column);
#pragma unroll
    for (int i = 0; i < 4; i++)
        x[i] = number(!packed ? all.word[i] : i % 2 == 0 ? all.word[i / 2] << 16 : all.word[i / 2] & 0xffff0000u);
}
__device__ __forceinline__ void put4(unsigned char* buffer, size_t begin, int column, const float (&x)[4]) {
    Four all;
#pragma unroll
    for (int i = 0; i < number_bytes; i++) all.word[i] = packed ? pack_bf16(x[2 * i % 4], x[(2 * i + 1) % 4]) : bits(x[i]);
    *four_at(buffer, begin, column) = all;
}

struct Group {
    int index, count, warp, lane, g, t;
    int corner;  // the offset of the lane's first segment in the buffer

    __device__ __forceinline__ explicit Group(int thread) {
        index = thread / (32 * WARPS), count = blockDim.x / (32 * WARPS), warp = thread / 32 % WARPS;
        if (six_row_tiles && packed) warp = (thread / 32 ^ thread / 128) & 1;  // the one with more bonds on each scheduler in turn
        lane = thread % 32, g = lane >> 2, t = lane & 3;
        corner = static_cast<int>(segment_offset(row(0, 0), t));
    }
    // Returns the same group, computed anew where registers are scarce.
    __device__ __forceinline__ Group again() const { return scarce ? Group(static_cast<int>(anew(threadIdx.x))) : *this; }
    __device__ __forceinline__ void sync() const {
        if constexpr (WARPS == 1)
            __syncwarp();
        else
            barrier(1 + index, 32 * WARPS);
    }
    // Returns the warp's m-th row tile of the tile's, most bonds first. Of six, one warp has the first, fourth and fifth, the other the
    // rest. Both then pull about as much, and rows that need few neighbours are not asked for many.
    __device__ __forceinline__ int row_tile(int m) const { return six_row_tiles ? (m == 0 ? warp : m == 1 ? 3 - warp : 4 + warp) : warp * ROW_TILES + m; }
    // Returns how many rows lie between a row of the first of a warp's row tiles and the same row of the second.
    __device__ __forceinline__ static int to_second(int row) { return six_row_tiles && row % tile_rows < 16 ? 48 : 16; }
    __device__ __forceinline__ int row(int m, int half) const { return 16 * row_tile(m) + 8 * half + g; }
    __device__ __forceinline__ int rows_on(int m, int half) const { return 16 * (row_tile(m) - row_tile(0)) + 8 * half; }  // from the lane's first row
    // Returns the offset of a segment of the lane's rows, in a buffer whose first row is `first_row`.
    __device__ __forceinline__ size_t own_offset(int first_row, int m, int half, int b) const {
        return size_t(first_row) * stride + at_span(corner, b) + rows_on(m, half) * stride;
    }
};

// Reads the batch's bonds: those of a tile's atom go from `begin_of` to `end_of`, and `source_of` is the atom a bond comes from.
__device__ __forceinline__ int begin_of(const Bonds& bonds, const Tile& tile, int atom) { return __ldg(bonds.rowptr + tile.first_node + atom); }
__device__ __forceinline__ int end_of(const Bonds& bonds, const Tile& tile, int atom) { return __ldg(bonds.rowptr + tile.first_node + atom + 1); }
__device__ __forceinline__ int source_of(const Bonds& bonds, const Tile& tile, int bond) { return __ldg(bonds.col + bond) - tile.first_node; }
