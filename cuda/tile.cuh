// A tile: consecutive whole molecules on `places` node places, worked on by a group of WARPS warps of one block.
//
// Warp w owns the ROW_TILES * 16 rows from 16 ROW_TILES w on, in the layout of fragments.cuh. Their features lie in a buffer in shared
// memory that all warps of the group pull neighbours from. A molecule with more than `places` atoms is a tile by itself; its features lie in
// global memory (`large`) in the same layout, and the group walks over it `places` rows at a time.
#pragma once
#include "fragments.cuh"

constexpr int places = 16 * ROW_TILES * WARPS;
constexpr int row_bytes = width * number_bytes;
constexpr int stride = row_bytes;
constexpr int offset_unit = (places + 1) * stride > 0x10000 ? 16 : 1;  // of a neighbour's 16-bit offset
constexpr int buffer_bytes = (places + 1) * stride;  // the last row is zero: the neighbour that a row lacks

struct Tile {
    int index, first_graph, end_graph, first_node, num_nodes;
};

// Where piece `piece` of 16 bytes of a row lies, in pieces: so that neither rows' pieces side by side (products over features) nor eight rows'
// equal pieces (products over nodes) meet in a bank.
constexpr int swizzled_span = packed ? 4 : 8;  // pieces
__device__ __forceinline__ int swizzle(int row) {
    if (width < 32) return 0;
    return packed ? row >> 1 & 3 : ((row ^ row >> 2) & 1) << 2 | (row & 2);
}
__device__ __forceinline__ int swizzled(int row, int piece) { return piece ^ swizzle(row); }
// Where a lane's first segment of a row lies, and span b's from there
__device__ __forceinline__ size_t place(int row, int t) { return size_t(row) * stride + (own * number_bytes == 16 ? 16 * swizzled(row, t) : 8 * t); }
constexpr int flip = packed || width < 32 ? 0 : 64;  // of odd spans, a swizzle too
__device__ __forceinline__ int span_bytes(int b) { return packed || width < 32 ? span * number_bytes * b : 128 * (b >> 1); }
template <class Offset>
__device__ __forceinline__ Offset at_span(Offset place, int b) {
    return (place ^ static_cast<Offset>(b & 1 ? flip : 0)) + static_cast<Offset>(span_bytes(b));
}

__device__ __forceinline__ unsigned char* number_at(unsigned char* buffer, int row, int column) {
    return buffer + at_span(place(row, column % span / own), column / span) + column % own * number_bytes;
}
__device__ __forceinline__ float get(const unsigned char* buffer, int row, int column) {
    const unsigned char* at = number_at(const_cast<unsigned char*>(buffer), row, column);
    return packed ? number(uint32(*reinterpret_cast<const unsigned short*>(at)) << 16) : *reinterpret_cast<const float*>(at);
}
__device__ __forceinline__ void put(unsigned char* buffer, int row, int column, float x) {
    unsigned char* at = number_at(buffer, row, column);
    if (packed)
        *reinterpret_cast<unsigned short*>(at) = static_cast<unsigned short>(pack_bf16(x, 0.0f));
    else
        *reinterpret_cast<float*>(at) = x;
}

struct Group {
    int index, count, warp, lane, g, t;
    int corner;  // place of the lane's first segment in the buffer

    __device__ Group() {
        const int thread = threadIdx.x;
        index = thread / (32 * WARPS), count = blockDim.x / (32 * WARPS), warp = thread / 32 % WARPS;
        lane = thread % 32, g = lane >> 2, t = lane & 3;
        corner = static_cast<int>(place(row(0, 0), t));
    }
    __device__ __forceinline__ void sync() const {
        if constexpr (WARPS == 1)
            __syncwarp();
        else
            barrier(1 + index, 32 * WARPS);
    }
    __device__ __forceinline__ int row(int m, int half) const { return 16 * (warp * ROW_TILES + m) + 8 * half + g; }
    // Place of a segment of the lane's rows, in a buffer whose first row is `first_row`
    __device__ __forceinline__ size_t own_place(int first_row, int m, int half, int b) const {
        return size_t(first_row) * stride + at_span(corner, b) + (16 * m + 8 * half) * stride;
    }
};

// The batch's bonds, counted within a tile.
struct Bonds {
    const int *rowptr, *col;

    __device__ __forceinline__ int begin(const Tile& tile, int row) const { return __ldg(rowptr + tile.first_node + row); }
    __device__ __forceinline__ int end(const Tile& tile, int row) const { return __ldg(rowptr + tile.first_node + row + 1); }
    __device__ __forceinline__ int source(const Tile& tile, int bond) const { return __ldg(col + bond) - tile.first_node; }
};

constexpr int pair = ROW_TILES < 2 ? 1 : 2;  // row tiles whose neighbours are pulled together

// Bonds of a warp's rows and D^-1/2. The first four bonds of a row stay in registers as 16-bit offsets into the buffer.
template <bool large>
struct Neighbours {
    float scale[ROW_TILES][2];
    uint32 near[ROW_TILES][2][2];
    int beyond;  // most bonds of a row of the warp, without four
    int first_row;

    // Loads of all rows are under way together: a tile begins with a chain of them.
    __device__ __forceinline__ void find(const Bonds& bonds, const Tile& tile, const Group& group, int first_row_) {
        first_row = first_row_;
        int begin[ROW_TILES][2], end[ROW_TILES][2], source[ROW_TILES][2][4];
        int most = 0;
        each_row([&](int m, int half) {
            const int row = first_row + group.row(m, half);
            const bool there = row < tile.num_nodes;
            begin[m][half] = there ? bonds.begin(tile, row) : 0;
            end[m][half] = there ? bonds.end(tile, row) : 0;
        });
        each_row([&](int m, int half) {
#pragma unroll
            for (int slot = 0; slot < 4; slot++) {
                const int bond = begin[m][half] + slot;
                source[m][half][slot] = bond < end[m][half] ? bonds.source(tile, bond) : -1;
            }
        });
        each_row([&](int m, int half) {
            const int row = first_row + group.row(m, half);
            int degree = end[m][half] - begin[m][half];
            most = max(most, degree);
            uint32 offset[4];
#pragma unroll
            for (int slot = 0; slot < 4; slot++) {
                const int neighbour = source[m][half][slot];
                const bool self = SELF_LOOPS && neighbour == row;
                degree -= self;
                const int at = large || neighbour < 0 || self ? places : neighbour & (places - 1);
                offset[slot] = static_cast<uint32>(place(at, group.t)) / offset_unit;
            }
            near[m][half][0] = offset[0] | offset[1] << 16;
            near[m][half][1] = offset[2] | offset[3] << 16;
#pragma unroll 1
            for (int bond = begin[m][half] + 4; SELF_LOOPS && bond < end[m][half]; bond++) degree -= bonds.source(tile, bond) == row;
            degree += SELF_LOOPS && row < tile.num_nodes;
            scale[m][half] = degree > 0 ? 1.0f / sqrtf(static_cast<float>(degree)) : 0.0f;
        });
        beyond = largest(most) - 4;
    }

    // total = the lane's segments of span b of (A + I) times the buffer, for the rows of two row tiles from m0 on
    __device__ __forceinline__ void pull(Segment (&total)[pair][2], const unsigned char* buffer, const Bonds& bonds, const Tile& tile,
                                         const Group& group, int b, int m0) const {
#pragma unroll
        for (int i = 0; i < 2 * pair; i++) {
            const bool own_row = SELF_LOOPS && (!large || first_row + group.row(m0 + i / 2, i % 2) < tile.num_nodes);
            total[i / 2][i % 2] = own_row ? load(buffer + group.own_place(first_row, m0 + i / 2, i % 2, b)) : zeros();
        }
        if constexpr (!large) {
            const unsigned char* begin = buffer + span_bytes(b);
            const uint32 flips = b & 1 ? flip / offset_unit * 0x10001 : 0;
#pragma unroll
            for (int slot = 0; slot < 4; slot++)
#pragma unroll
                for (int i = 0; i < 2 * pair; i++) {
                    const uint32 offset = (anew(near[m0 + i / 2][i % 2][slot >> 1]) ^ flips) >> 16 * (slot & 1) & 0xffffu;
                    add(total[i / 2][i % 2], load(begin + offset * offset_unit));
                }
        }
#pragma unroll 1
        for (int slot = large ? 0 : 4; slot < beyond + 4; slot++)
#pragma unroll
            for (int i = 0; i < 2 * pair; i++) {
                const int row = first_row + group.row(m0 + i / 2, i % 2);
                const int bond = row < tile.num_nodes ? bonds.begin(tile, row) + slot : 0;
                if (row >= tile.num_nodes || bond >= bonds.end(tile, row)) continue;
                const int neighbour = bonds.source(tile, bond);
                if (SELF_LOOPS && neighbour == row) continue;
                add(total[i / 2][i % 2], load(buffer + at_span(place(large ? neighbour : neighbour & (places - 1), group.t), b)));
            }
    }
};
