// A tile: consecutive whole molecules on PLACES node places, worked on by a group of WARPS warps of one block.
//
// Warp w owns the ROW_TILES * 16 rows from 16 ROW_TILES w on, in the layout of matrix.cuh. Their features lie in one buffer in shared memory
// that all warps of the group pull neighbours from. A molecule with more than PLACES atoms is a tile by itself; its features lie in global
// memory (`large`), and the group walks over it PLACES rows at a time.
#pragma once
#include "matrix.cuh"

constexpr int width = HIDDEN <= 16 ? 16 : (HIDDEN + 31) / 32 * 32;  // of the features with padding
constexpr bool padded = width != HIDDEN;
constexpr int chunks = width / 16;
constexpr int wide = chunks < 2 ? chunks : 2;  // blocks of a product side by side
constexpr int stride = width < 32 ? 32 : width;  // of a row in shared memory: whole swizzles
constexpr int places = 16 * ROW_TILES * WARPS;

__device__ __forceinline__ float4 nothing() { return make_float4(0.0f, 0.0f, 0.0f, 0.0f); }

struct Tile {
    int first_graph, end_graph, first_node, num_nodes;
};

// Which of its 8 neighbours in a row of shared memory a float4 changes places with. The swizzle keeps both ways of reading free of bank
// conflicts: a row's four lanes side by side (products over features) and four rows side by side (products over nodes).
__device__ __forceinline__ int swizzle(int row) { return (row & 1) << 2 | (row & 2); }

struct Group {
    int index, count, warp, lane, g, t;
    int corner;  // place of the lane's first float4 in the buffer
    int across;  // place of columns 2 g, 2 g + 1 of row t

    __device__ Group() {
        const int thread = threadIdx.x;
        index = thread / (32 * WARPS), count = blockDim.x / (32 * WARPS), warp = thread / 32 % WARPS;
        lane = thread % 32, g = lane >> 2, t = lane & 3;
        corner = row(0, 0) * stride + 4 * (t ^ swizzle(g));
        across = t * stride + 4 * (g >> 1 ^ swizzle(t)) + 2 * (g & 1);
    }
    __device__ __forceinline__ void sync() const {
        if constexpr (WARPS == 1)
            __syncwarp();
        else
            barrier(1 + index, 32 * WARPS);
    }
    __device__ __forceinline__ int row(int m, int half) const { return 16 * (warp * ROW_TILES + m) + 8 * half + g; }
};

// The features of a warp's rows: lane (g, t) has columns 16 p + 4 t + e of rows g and g + 8 of each row tile, as products leave them.
struct Features {
    float v[ROW_TILES][chunks][2][4];

    __device__ __forceinline__ float& at(int m, int half, int p, int e) { return v[m][p][e & 1][2 * half + (e >> 1)]; }
    __device__ __forceinline__ float4 get(int m, int half, int p) {
        return make_float4(at(m, half, p, 0), at(m, half, p, 1), at(m, half, p, 2), at(m, half, p, 3));
    }
    __device__ __forceinline__ void set(int m, int half, int p, const float4& x) {
        at(m, half, p, 0) = x.x, at(m, half, p, 1) = x.y, at(m, half, p, 2) = x.z, at(m, half, p, 3) = x.w;
    }
    __device__ __forceinline__ void zero() {
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
            for (int p = 0; p < chunks; p++) set(m, 0, p, nothing()), set(m, 1, p, nothing());
    }
};

// Runs body(m, half, p) for each of a lane's groups of four columns.
template <class Body>
__device__ __forceinline__ void each_four(Body body) {
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int p = 0; p < chunks; p++) body(m, half, p);
}

// Runs body(m, half) for each of a lane's rows.
template <class Body>
__device__ __forceinline__ void each_row(Body body) {
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) body(m, half);
}

// Where float4 number `four` of a row is.
template <bool large>
__device__ __forceinline__ int place(int row, int four) {
    return large ? row * width + 4 * four : row * stride + 4 * (four ^ swizzle(row));
}
// The same for a lane's own columns 16 c + 4 t of its rows, at a constant distance from its corner
template <bool large>
__device__ __forceinline__ int own_place(const Group& group, int first_row, int m, int half, int c) {
    if constexpr (large) return (first_row + group.row(m, half)) * width + 16 * c + 4 * group.t;
    return (group.corner ^ (c & 1) * 16) + (16 * m + 8 * half) * stride + (c >> 1) * 32;
}
// ... and for columns 16 c + 2 g, 2 g + 1 of row first + 4 e + t
template <bool large>
__device__ __forceinline__ int across_place(const Group& group, int first, int e, int c) {
    if constexpr (large) return (first + 4 * e + group.t) * width + 16 * c + 2 * group.g;
    return (group.across ^ (c & 1) * 16) + (first + 4 * e) * stride + (c >> 1) * 32;
}
template <bool large>
__device__ __forceinline__ float4 load(const float* buffer, int row, int four) {
    return *reinterpret_cast<const float4*>(buffer + place<large>(row, four));
}
template <bool large>
__device__ __forceinline__ float4 load_own(const float* buffer, const Group& group, int first_row, int m, int half, int c) {
    return *reinterpret_cast<const float4*>(buffer + own_place<large>(group, first_row, m, half, c));
}
template <bool large>
__device__ __forceinline__ void store_own(float* buffer, const Group& group, int first_row, int m, int half, int c, float4 value) {
    *reinterpret_cast<float4*>(buffer + own_place<large>(group, first_row, m, half, c)) = value;
}
__device__ __forceinline__ void add(float4& sum, const float4& x) { sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w; }

// The batch's bonds, counted within a tile.
struct Bonds {
    const int *rowptr, *col;

    __device__ __forceinline__ int begin(const Tile& tile, int row) const { return __ldg(rowptr + tile.first_node + row); }
    __device__ __forceinline__ int end(const Tile& tile, int row) const { return __ldg(rowptr + tile.first_node + row + 1); }
    __device__ __forceinline__ int source(const Tile& tile, int bond) const { return __ldg(col + bond) - tile.first_node; }
};

// Bonds of a warp's rows and D^-1/2. The first four bonds of a row stay in registers as 16-bit offsets into the buffer.
template <bool large>
struct Neighbours {
    static constexpr uint32 none = 0xffffu;
    float scale[ROW_TILES][2];
    uint32 near[ROW_TILES][2][2];
    bool more;  // some row of the warp has more than four
    int first_row;

    // Loads of all rows are under way together: a tile begins with a chain of them.
    __device__ __forceinline__ void find(const Bonds& bonds, const Tile& tile, const Group& group, int first_row_) {
        first_row = first_row_;
        int begin[ROW_TILES][2], end[ROW_TILES][2], source[ROW_TILES][2][4];
        bool beyond = false;
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
            beyond |= degree > 4;
            uint32 offset[4];
#pragma unroll
            for (int slot = 0; slot < 4; slot++) {
                const int neighbour = source[m][half][slot];
                const bool self = SELF_LOOPS && neighbour == row;
                degree -= self;
                offset[slot] = neighbour < 0 || self ? none : 4 * place<false>(neighbour & (places - 1), group.t);
            }
            near[m][half][0] = offset[0] | offset[1] << 16;
            near[m][half][1] = offset[2] | offset[3] << 16;
#pragma unroll 1
            for (int bond = begin[m][half] + 4; SELF_LOOPS && bond < end[m][half]; bond++) degree -= bonds.source(tile, bond) == row;
            degree += SELF_LOOPS && row < tile.num_nodes;
            scale[m][half] = degree > 0 ? 1.0f / sqrtf(static_cast<float>(degree)) : 0.0f;
        });
        more = any_lane(beyond);
    }

    // total[i][m][half] = columns 16 (c + i) + 4 t + 0 .. 3 of (A + I) times the buffer, for the warp's rows; c even
    __device__ __forceinline__ void pull(float4 (&total)[wide][ROW_TILES][2], const float* buffer, const Bonds& bonds, const Tile& tile,
                                         const Group& group, int c) const {
        each_row([&](int m, int half) {
            const bool own = SELF_LOOPS && (!large || first_row + group.row(m, half) < tile.num_nodes);
#pragma unroll
            for (int i = 0; i < wide; i++) total[i][m][half] = own ? load_own<large>(buffer, group, first_row, m, half, c + i) : nothing();
        });
        if constexpr (!large) {
            const char* begin = reinterpret_cast<const char*>(buffer) + (c >> 1) * 128;
#pragma unroll
            for (int slot = 0; slot < 4; slot++)
#pragma unroll
                for (int i = 0; i < wide; i++)  // outside the rows, so that each load has a predicate and none waits behind a branch
                    each_row([&](int m, int half) {
                        const uint32 offset = near[m][half][slot >> 1] >> 16 * (slot & 1) & none;
                        if (offset != none) add(total[i][m][half], *reinterpret_cast<const float4*>(begin + (offset ^ i << 6)));
                    });
        }
        if (large || more) each_row([&](int m, int half) {
            const int row = first_row + group.row(m, half);
            if (row < tile.num_nodes) {
                const int end = bonds.end(tile, row);
#pragma unroll 1
                for (int bond = bonds.begin(tile, row) + (large ? 0 : 4); bond < end; bond++) {
                    const int neighbour = bonds.source(tile, bond), at = large ? neighbour : neighbour & (places - 1);
                    if (SELF_LOOPS && neighbour == row) continue;
#pragma unroll
                    for (int i = 0; i < wide; i++) add(total[i][m][half], load<large>(buffer, at, 4 * (c + i) + group.t));
                }
            }
        });
    }
};
