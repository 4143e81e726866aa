// A block's rows in shared memory: Â times the layer's input, gathered from the atoms' bonds, and its product with a weight.
#pragma once
#include "gcn_layer.cuh"

struct Shared {
    float* tile;      // [rows, stride]
    int4* sources;    // [rows]
    float4* factors;  // [rows]
    float4* own;      // [rows]: the atom's own factor; then, as integers, its bonds beyond the fourth: first, end
    float* columns;   // [6, width]: numbers of each column
    float* work;      // [3, shares, width]: sums on their way
    int* flag;

    __device__ explicit Shared(unsigned char* memory) {
        tile = reinterpret_cast<float*>(memory);
        sources = reinterpret_cast<int4*>(tile + rows * stride);
        factors = reinterpret_cast<float4*>(sources + rows);
        own = factors + rows;
        columns = reinterpret_cast<float*>(own + rows);
        work = columns + 6 * width;
        flag = reinterpret_cast<int*>(work + 3 * shares * width);
    }
    __device__ __forceinline__ float4 column4(int which, int quad) const { return four(columns + which * width + 4 * quad); }
};

__device__ __forceinline__ void read_bonds(const Parameters& p, const Shared& shared, int first, int count) {
    for (int row = threadIdx.x; row < count; row += threads) {
        const int node = first + row;
        const int begin = __ldg(p.rowptr + node) + 4, end = __ldg(p.rowptr + node + 1);
        const float scale = p.scale[node];
        shared.sources[row] = p.sources[node];
        shared.factors[row] = p.factors[node];
        const uint32 none = 0;
        shared.own[row] = make_float4(SELF_LOOPS ? scale * scale : 0.0f, scale, number(begin < end ? begin : none), number(begin < end ? end : none));
    }
}

// tile[row] = columns 4 first_quad .. + 4 count_quads of Â times read(quad)(node); own(node, quad, value, sum) is told of each. Loads of
// `together` items are under way at the same time.
template <class Read, class Own>
__device__ __forceinline__ void gather(const Parameters& p, const Shared& shared, int first, int count, int first_quad, int count_quads,
                                       bool need_own, Read make_read, Own own) {
    constexpr int together = 2;
    const float inverse = 1.0f / static_cast<float>(count_quads);
    const int items = rows * count_quads;
    for (int begin = threadIdx.x; begin < items; begin += together * threads) {
        float4 x[together], sum[together];
        int row[together], quad[together];
#pragma unroll
        for (int i = 0; i < together; i++) {
            const int item = begin + i * threads;
            row[i] = static_cast<int>((static_cast<float>(item) + 0.5f) * inverse), quad[i] = item - row[i] * count_quads;
            sum[i] = x[i] = nothing();
            if (item < items && row[i] < count) {
                const auto read = make_read(first_quad + quad[i]);
                const int4 source = shared.sources[row[i]];
                const float4 factor = shared.factors[row[i]], zero = nothing();
                const float self = shared.own[row[i]].x;
                if (need_own || SELF_LOOPS) x[i] = read(first + row[i]);
                const float4 x0 = factor.x != 0.0f ? read(source.x) : zero, x1 = factor.y != 0.0f ? read(source.y) : zero;
                const float4 x2 = factor.z != 0.0f ? read(source.z) : zero, x3 = factor.w != 0.0f ? read(source.w) : zero;
                if (SELF_LOOPS) add(sum[i], self, x[i]);
                add(sum[i], factor.x, x0), add(sum[i], factor.y, x1), add(sum[i], factor.z, x2), add(sum[i], factor.w, x3);
            }
        }
#pragma unroll
        for (int i = 0; i < together; i++) {
            if (begin + i * threads >= items) break;
            if (row[i] < count) {
                const int node = first + row[i];
                const float4 self = shared.own[row[i]];
                const int end = static_cast<int>(bits(self.w));
                if (static_cast<int>(bits(self.z)) < end) {
                    const auto read = make_read(first_quad + quad[i]);
#pragma unroll 1
                    for (int bond = static_cast<int>(bits(self.z)); bond < end; bond++) {
                        const int neighbour = __ldg(p.col + bond);
                        if (!(SELF_LOOPS && neighbour == node)) add(sum[i], self.y * p.scale[neighbour], read(neighbour));
                    }
                }
                own(node, first_quad + quad[i], x[i], sum[i]);
            }
            four(shared.tile + row[i] * stride + 4 * quad[i]) = sum[i];
        }
    }
}

struct Product {
    static constexpr int ahead = COLUMN_TILES == 1 ? 4 : 2;  // steps whose operands are under way
    float sum[ROW_TILES][COLUMN_TILES][2][4];
    float4 w[ahead][COLUMN_TILES][2];
    const float4* operands[COLUMN_TILES];
    int lane, g, t, row, column;  // of the warp: first row, first 16 columns
    int in_chunks, across;

    __device__ Product() {
        const int warp = threadIdx.x / 32;
        lane = threadIdx.x % 32, g = lane >> 2, t = lane & 3;
        row = warp / WARP_COLUMNS * 16 * ROW_TILES, column = warp % WARP_COLUMNS * COLUMN_TILES;
    }
    __device__ __forceinline__ void zero() {
#pragma unroll
        for (int i = 0; i < ROW_TILES * COLUMN_TILES * 8; i++) (&sum[0][0][0][0])[i] = 0.0f;
    }
    // The operands from `fragments` on, of which there are `across` side by side; the warp's are those from `begin` + column on. Beyond the
    // last it repeats the last, and nobody looks. The first of them are under way from here on.
    __device__ __forceinline__ void start(const float* fragments, int in_chunks_, int across_, int begin = 0) {
        in_chunks = in_chunks_, across = across_;
#pragma unroll
        for (int i = 0; i < COLUMN_TILES; i++)
            operands[i] = reinterpret_cast<const float4*>(fragments) + 64 * min(begin + column + i, across - 1) + lane;
#pragma unroll
        for (int step = 0; step < ahead; step++)
            if (step < in_chunks) load(step);
    }
    __device__ __forceinline__ void load(int step) {
#pragma unroll
        for (int i = 0; i < COLUMN_TILES; i++) {
            w[step][i][0] = __ldg(operands[i]), w[step][i][1] = __ldg(operands[i] + 32);
            operands[i] += 64 * across;
        }
    }
    // Adds the tile's first 16 * in_chunks columns times the operands.
    __device__ __forceinline__ void multiply(const float* tile) {
        const float* corner = tile + (row + g) * stride + 4 * t;
#pragma unroll 1
        for (int first = 0; first < in_chunks; first += ahead)
#pragma unroll
            for (int step = 0; step < ahead; step++) {
                if (first + step >= in_chunks) break;
                matrix::Left a[ROW_TILES];
#pragma unroll
                for (int m = 0; m < ROW_TILES; m++) {
                    const float* at = corner + 16 * m * stride + 16 * (first + step);
                    const float4 v[2] = {*reinterpret_cast<const float4*>(at), *reinterpret_cast<const float4*>(at + 8 * stride)};
                    a[m] = matrix::left(v);
                }
                matrix::Right b[COLUMN_TILES][2];
#pragma unroll
                for (int i = 0; i < COLUMN_TILES; i++)
#pragma unroll
                    for (int j = 0; j < 2; j++) {
                        const float4& x = w[step][i][j];
                        const float v[4] = {x.x, x.y, x.z, x.w};
                        b[i][j] = matrix::right(v);
                    }
                if (first + step + ahead < in_chunks) load(step);
                matrix::multiply_add<ROW_TILES, COLUMN_TILES>([&](int m, int i) -> float(&)[2][4] { return sum[m][i]; }, a, b);
            }
    }
    __device__ __forceinline__ float4 get(int m, int half, int i) const {
        return make_float4(sum[m][i][0][2 * half], sum[m][i][1][2 * half], sum[m][i][0][2 * half + 1], sum[m][i][1][2 * half + 1]);
    }
    // body(row, first of four columns, the four sums) for what the lane holds
    template <class Body>
    __device__ __forceinline__ void each(int begin, Body body) const {
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
            for (int half = 0; half < 2; half++)
#pragma unroll
                for (int i = 0; i < COLUMN_TILES; i++)
                    if (begin + column + i < across) body(row + 16 * m + 8 * half + g, 16 * (begin + column + i) + 4 * t, get(m, half, i));
    }
};
