// A tile of the network engine: consecutive whole molecules of at most 16 * WARPS atoms. A block works on one tile at a time.
//
// Each warp owns 16 rows. Lane 4 g + t holds rows g and g + 8, and in every 16 columns the four columns 4 t .. 4 t + 3. The result of a
// matrix product is then the next product's operand as it stands.
#pragma once
#include "philox.cuh"
#include "quads.cuh"
#include "tile_network_structs.h"  // molgcn/ops/layer_network/tiles_arguments.py

constexpr int tile_rows = 16 * WARPS, threads = 32 * WARPS;
constexpr int stride = 16 * CHUNKS;             // of rows in shared memory
constexpr int slot_size = tile_rows * stride;  // numbers of the rows of one slot

struct Tile {
    int first_graph, end_graph, first, count;  // molecules and atoms
    int warp, lane, g, t;

    __device__ __forceinline__ Tile(const Parameters& p, int index) {
        first_graph = __ldg(p.tile_ptr + index), end_graph = __ldg(p.tile_ptr + index + 1);
        first = __ldg(p.ptr + first_graph), count = __ldg(p.ptr + end_graph) - first;
        warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane >> 2, t = lane & 3;
    }
    __device__ __forceinline__ int row(int half) const { return 16 * warp + 8 * half + g; }
    __device__ __forceinline__ int atom(int half) const { return first + row(half); }
    __device__ __forceinline__ bool has(int half) const { return row(half) < count; }
    // Whether a tile has more atoms than the caller promised. Its results are NaN; memory of others stays as it is.
    __device__ __forceinline__ bool breaks_promise() const { return count > tile_rows; }
};

// Returns four columns of a row in a slot. The swizzle lets two adjacent rows use all banks.
__device__ __forceinline__ float4& row_at(float* slot, int row, int column) {
    return four(slot + row * stride + (CHUNKS % 2 == 0 ? column ^ (row & 1) << 4 : column));
}
__device__ __forceinline__ const float4& row_at(const float* slot, int row, int column) { return row_at(const_cast<float*>(slot), row, column); }

__device__ __forceinline__ int padded(int width) { return (width + 3) / 4 * 4; }  // the distance between two rows in global memory
__device__ __forceinline__ void set(float (&x)[4], const float4& y) { x[0] = y.x, x[1] = y.y, x[2] = y.z, x[3] = y.w; }
__device__ __forceinline__ float4 quad(const float (&x)[4]) { return make_float4(x[0], x[1], x[2], x[3]); }

// Loads four numbers of a vector of `width` numbers, and zeros beyond it.
__device__ __forceinline__ float4 load_vector(const float* vector, int column, int width) {
    if (HIDDEN % 16 == 0 && width == HIDDEN) return load4(vector + column);
    float4 x = nothing();
#pragma unroll
    for (int e = 0; e < 4; e++)
        if (column + e < width) at(x, e) = __ldg(vector + column + e);
    return x;
}

// Asks for the warp's rows of global memory.
__device__ __forceinline__ void fetch(const Tile& tile, const float* rows, int width) {
    const int first = 16 * tile.warp, step = padded(width), end = min(16, tile.count - first) * step;
    for (int i = 32 * tile.lane; i < end; i += 32 * 32) prefetch(rows + size_t(tile.first + first) * step + i);  // a line of the cache each
}

// What a lane holds of its warp's 16 rows: [16 columns][row g or g + 8][column].
struct Features {
    float v[CHUNKS][2][4];

    template <class Body>  // body(chunk, half, numbers, first column)
    __device__ __forceinline__ void each(const Tile& tile, int width, Body body) {
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
            if (16 * c < width)
#pragma unroll
                for (int half = 0; half < 2; half++) body(c, half, v[c][half], 16 * c + 4 * tile.t);
    }
    __device__ __forceinline__ void zero() {
#pragma unroll
        for (int i = 0; i < CHUNKS * 8; i++) (&v[0][0][0])[i] = 0.0f;
    }
    // Loads rows from global memory, and zeros beyond the last column or atom.
    __device__ __forceinline__ void load(const Tile& tile, const float* rows, int width) {
        const int step = padded(width);
        zero();
        each(tile, width, [&](int, int half, float(&x)[4], int column) {
            if (tile.has(half) && column < step) set(x, __ldg(reinterpret_cast<const float4*>(rows + size_t(tile.atom(half)) * step + column)));
        });
    }
    __device__ __forceinline__ void store(const Tile& tile, float* rows, int width) {
        const int step = padded(width);
        each(tile, width, [&](int, int half, float(&x)[4], int column) {
            if (tile.has(half) && column < step) four(rows + size_t(tile.atom(half)) * step + column) = quad(x);
        });
    }
    __device__ __forceinline__ void put(const Tile& tile, float* slot) {
        each(tile, 16 * CHUNKS, [&](int, int half, float(&x)[4], int column) { row_at(slot, tile.row(half), column) = quad(x); });
    }
    __device__ __forceinline__ void take(const Tile& tile, const float* slot) {
        each(tile, 16 * CHUNKS, [&](int, int half, float(&x)[4], int column) {
            set(x, row_at(slot, tile.row(half), column));
        });
    }
    __device__ __forceinline__ void add(const Tile& tile, const float* slot) {
        each(tile, 16 * CHUNKS, [&](int, int half, float(&x)[4], int column) {
            const float4 more = row_at(slot, tile.row(half), column);
            x[0] += more.x, x[1] += more.y, x[2] += more.z, x[3] += more.w;
        });
    }
};

// Adds sums of columns over the warp's rows to its own sums in global memory: value(chunk, index) returns what the lane has for one of
// eight numbers, which go to sums + 16 chunk + 4 t + index % 4, in the second `HIDDEN` numbers from index 4 on.
template <class Value>
__device__ __forceinline__ void add_columns(const Tile& tile, float* sums, Value value) {
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        if (16 * c >= HIDDEN) continue;
        float x[8];
#pragma unroll
        for (int i = 0; i < 8; i++) x[i] = value(c, i);
#pragma unroll
        for (int bit = 4; bit > 0; bit >>= 1) {  // each lane passes one half of its numbers on and keeps the other
            const bool upper = tile.g & bit;
#pragma unroll
            for (int i = 0; i < bit; i++) {
                const float mine = upper ? x[i + bit] : x[i], other = upper ? x[i] : x[i + bit];
                x[i] = mine + shuffle_xor(other, 4 * bit);
            }
        }
        const int column = 16 * c + 4 * tile.t + (tile.g & 3);
        if (column < HIDDEN) atomicAdd(sums + (tile.g >> 2) * HIDDEN + column, x[0]);  // nobody else adds to this number
    }
}
