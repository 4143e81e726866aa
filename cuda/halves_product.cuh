// The product of rows and a weight on the tensor cores, for kernels that hold `stride` floats of each row in shared memory.
//
// Macros: PRECISION, WARP_COLUMNS, COLUMN_TILES (of a warp), and its number of rows as ROW_GROUPS (of eight) or ROW_TILES (of 16).
#pragma once
#include "relu_signs.cuh"
#ifndef ROW_GROUPS
#define ROW_GROUPS (2 * ROW_TILES)
#endif

// The tile times a weight, both as halves (halves.cuh), as (weight^T tile^T)^T: each operand is then what one load brings. Lane 4 g + t of
// a warp has columns 2 g and 2 g + 1 of every 16, of atoms 2 t and 2 t + 1 of every eight. The warp has COLUMNS times 16 columns, and the
// tile has CHUNKS times 16, with STRIDE floats from row to row. IN_SHARED: the weight's operands are in shared memory. With
// PART_CHUNKS sums of so many chunks are added up in float32, since tensor cores cut long ones off too often; it takes twice the registers.
// If that is one, low low is added too. APART: low high and high low have sums of their own, so that products wait for each other less.
template <int COLUMNS, int CHUNKS, int STRIDE, bool IN_SHARED = false, int PART_CHUNKS = 0, bool APART = false>
struct ProductOf {
    static constexpr int ahead = 2;  // steps whose operands are under way
    static constexpr int groups = ROW_GROUPS;             // of eight atoms
    static constexpr bool exact = PRECISION == PRECISION_FLOAT32;
    float sum[COLUMNS][groups][4];
    float4 w[ahead][COLUMNS][2];  // halves, and what they leave
    const float4* operands[COLUMNS];
    int lane, g, t, row, column;  // of the warp: first row, first 16 columns
    int in_chunks, across;

    __device__ ProductOf() {
        const int warp = threadIdx.x / 32;
        lane = threadIdx.x % 32, g = lane >> 2, t = lane & 3;
        row = warp / WARP_COLUMNS * 8 * ROW_GROUPS, column = warp % WARP_COLUMNS * COLUMNS;
    }
    // Returns the atom in column n of eight. Even and odd rows are then read from different banks.
    static __device__ __forceinline__ int atom(int n) { return atom_of(n); }
    __device__ __forceinline__ void zero() {
#pragma unroll
        for (int i = 0; i < COLUMNS * groups * 4; i++) (&sum[0][0][0])[i] = 0.0f;
    }
    // Prepares the product with operands of `across` times 16 columns. The warp has those from `begin` + column on; beyond the last it
    // repeats the last, and nobody reads the result. Of `all_chunks` times 16 contracted numbers it takes `in_chunks` from `first_chunk`
    // on. The first loads are under way from here on.
    __device__ __forceinline__ void start(const float* fragments, int first_chunk, int in_chunks_, int all_chunks, int across_, int begin = 0) {
        in_chunks = in_chunks_, across = across_;
#pragma unroll
        for (int i = 0; i < COLUMNS; i++)
            operands[i] = reinterpret_cast<const float4*>(fragments) + 64 * (size_t(min(begin + column + i, across - 1)) * all_chunks + first_chunk) + lane;
#pragma unroll
        for (int step = 0; step < ahead; step++)
            if (step < in_chunks) load(step);
    }
    __device__ __forceinline__ void load(int step) {
#pragma unroll
        for (int i = 0; i < COLUMNS; i++) {
            w[step][i][0] = IN_SHARED ? *operands[i] : __ldg(operands[i]);
            if (exact) w[step][i][1] = IN_SHARED ? operands[i][32] : __ldg(operands[i] + 32);
            operands[i] += 64;
        }
    }
    // Adds the tile's first 16 * in_chunks columns times the operands. `unrolled` runs faster but takes NVRTC longer.
    __device__ __forceinline__ void multiply(const float* tile, bool unrolled = true) {
        const float* corner = tile + (row + atom(g)) * STRIDE + 4 * t;
        float4 v[groups];
        float part[COLUMNS][groups][4], (&to)[COLUMNS][groups][4] = PART_CHUNKS > 0 ? part : sum;
#pragma unroll
        for (int i = 0; PART_CHUNKS > 0 && i < COLUMNS * groups * 4; i++) (&part[0][0][0])[i] = 0.0f;
        const auto add_up = [&](int chunk) {
            if (PART_CHUNKS == 0 || ((chunk + 1) % PART_CHUNKS > 0 && chunk + 1 < in_chunks)) return;
#pragma unroll
            for (int i = 0; i < COLUMNS * groups * 4; i++) (&sum[0][0][0])[i] += (&part[0][0][0])[i], (&part[0][0][0])[i] = 0.0f;
        };
        float small[2][COLUMNS][groups][4];  // of low high and of high low
#pragma unroll
        for (int i = 0; APART && i < 2 * COLUMNS * groups * 4; i++) (&small[0][0][0][0])[i] = 0.0f;
        read(v, corner);
        if (unrolled && in_chunks == CHUNKS) {
            constexpr int at_once = CHUNKS >= 16 ? 8 : CHUNKS;
#pragma unroll 1
            for (int first = 0; first < CHUNKS; first += at_once)
#pragma unroll
                for (int k = 0; k < at_once; k++)
                    if (first + k < CHUNKS) {
                        step(to, small, k % ahead, first + k + ahead < CHUNKS, v, first + k + 1 < CHUNKS ? corner + 16 * (first + k + 1) : corner);
                        add_up(first + k);
                    }
        } else {
#pragma unroll 1
            for (int first = 0; first < in_chunks; first += ahead)
#pragma unroll
                for (int i = 0; i < ahead; i++)
                    if (first + i < in_chunks) {
                        step(to, small, i, first + i + ahead < in_chunks, v, first + i + 1 < in_chunks ? corner + 16 * (first + i + 1) : corner);
                        add_up(first + i);
                    }
        }
#pragma unroll
        for (int i = 0; PART_CHUNKS > 0 && i < COLUMNS * groups * 4; i++)
            (&sum[0][0][0])[i] *= larger_by(0.375f * (PART_CHUNKS - CHUNKS));  // the weight's scales make up for sums of all chunks
#pragma unroll
        for (int i = 0; APART && i < COLUMNS * groups * 4; i++)
            (&sum[0][0][0])[i] = ((&sum[0][0][0])[i] + ((&small[0][0][0][0])[i] + (&small[1][0][0][0])[i])) * larger_by(-0.125f * CHUNKS);
    }
    __device__ __forceinline__ void read(float4 (&v)[groups], const float* corner) const {
#pragma unroll
        for (int m = 0; m < groups; m++) v[m] = *reinterpret_cast<const float4*>(corner + 8 * m * STRIDE);
    }
    // Adds v times operand i to `to`. Meanwhile it reads the next v, and the operand `ahead` steps on.
    __device__ __forceinline__ void step(float (&to)[COLUMNS][groups][4], float (&small)[2][COLUMNS][groups][4], int i, bool more, float4 (&v)[groups], const float* next) {
        uint32 a[COLUMNS][2][4], b[groups][2][2];
#pragma unroll
        for (int c = 0; c < COLUMNS; c++)
#pragma unroll
            for (int part = 0; part < 1 + exact; part++)
#pragma unroll
                for (int e = 0; e < 4; e++) a[c][part][e] = bits(at(w[i][c][part], e));
#pragma unroll
        for (int m = 0; m < groups; m++)
#pragma unroll
            for (int e = 0; e < 4; e++) b[m][e / 2][e % 2] = bits(at(v[m], e));
        read(v, next);
        if (more) load(i);
#pragma unroll
        for (int pass = exact ? PART_CHUNKS == 1 ? 0 : 1 : 3; pass < 4; pass++)  // small products first
#pragma unroll
            for (int c = 0; c < COLUMNS; c++)
#pragma unroll
                for (int m = 0; m < groups; m++) mma_half(APART && pass < 3 ? small[pass % 2][c][m] : to[c][m], a[c][pass < 2], b[m][pass % 2 == 0]);
    }
    // Calls body(row, first of two columns, the two sums) for what the lane holds.
    template <class Body>
    __device__ __forceinline__ void each(const float* row_scales, const float* scales, int begin, Body body) const {
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
            if (begin + column + c >= across) continue;
            const int first = 16 * (begin + column + c) + 2 * g;
            const float2 scale = __ldg(reinterpret_cast<const float2*>(scales + first));
#pragma unroll
            for (int m = 0; m < groups; m++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const int mine = row + 8 * m + atom(2 * t + i);
                    const float down = row_scales[mine];
                    body(mine, first, make_float2(sum[c][m][i] * (down * scale.x), sum[c][m][2 + i] * (down * scale.y)));
                }
        }
    }
};
using Product = ProductOf<COLUMN_TILES, chunks, stride>;
