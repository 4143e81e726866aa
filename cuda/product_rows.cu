// Rows times a matrix, and what follows in the same launch: out = mask (dropout(relu(x W^T + b)) + a), each part where it is wanted. Where
// a norm comes next, the launch also computes the moments of the columns over the real rows.
//
// A block brings `rows` whole rows into shared memory as halves, and its warps share the columns of the result. In large batches a block
// goes through many tiles of rows: while one is multiplied, the next is on its way.
//
// Macros: IN, OUT (columns), PRECISION.
// Macros of what follows the product: RELU, DROPOUT, ADD, MASK, MOMENTS.
// Macros of the product: WARP_COLUMNS, ROW_TILES, COLUMN_TILES, MIN_BLOCKS (on a multiprocessor).
#include "halves.cuh"
#include "matrix.cuh"
#include "philox.cuh"
#include "quads.cuh"
#include "product_rows_structs.h"  // molgcn/ops/layer_network/products_arguments.py

constexpr int chunks = (IN + 15) / 16, width = 16 * chunks;  // of a row in shared memory
constexpr int stride = width % 32 == 0 ? width + 16 : width;  // two rows side by side use all banks
constexpr bool wide = chunks >= 16;                           // unrolls the product's loop in parts only, to save NVRTC's time
constexpr int rows = 16 * ROW_TILES, threads = 32 * WARP_COLUMNS;
constexpr int in_stride = (IN + 3) / 4 * 4, out_stride = (OUT + 3) / 4 * 4, out_chunks = (OUT + 15) / 16, out_width = 16 * out_chunks;

#include "halves_product.cuh"

__device__ constexpr int loads_of(int lanes) { return (width / 4 + lanes - 1) / lanes * lanes; }
__device__ constexpr int fewest(int a, int b) { return loads_of(a) <= loads_of(b) ? a : b; }
constexpr int lanes = fewest(32, fewest(16, fewest(8, 4)));  // that bring a row
constexpr int lane_quads = (width / 4 + lanes - 1) / lanes, teams = threads / lanes;

// Starts to copy rows into a tile as they are. The thread that copies a number converts it later.
__device__ __forceinline__ void copy_rows(const Parameters& p, float* tile, int first, int count) {
    for (int row = threadIdx.x / lanes; row < count; row += teams) {
        const float* from = p.x + size_t(first + row) * in_stride;
#pragma unroll
        for (int i = 0; i < lane_quads; i++) {
            const int column = 4 * (static_cast<int>(threadIdx.x % lanes) + i * lanes);
            if (column < in_stride) copy16(tile + row * stride + column, from + column, true);
        }
    }
}

// Converts a tile's rows to halves, each row with its scale; writes zeros from `count` on.
__device__ __forceinline__ void convert_rows(float* tile, float* row_scales, int count) {
    const int lane = threadIdx.x % lanes;
    for (int row = threadIdx.x / lanes; row < rows; row += teams) {  // all lanes of a warp continue together: a warp has whole teams
        float* begin = tile + row * stride;
        float4 x[lane_quads];
        float most = 0.0f;
#pragma unroll
        for (int i = 0; i < lane_quads; i++) {
            const int column = 4 * (lane + i * lanes);
            x[i] = row < count && column < in_stride ? four(begin + column) : nothing();
#pragma unroll
            for (int e = 0; e < 4; e++) most = fmaxf(most, fabsf(at(x[i], e)));
        }
#pragma unroll
        for (int mask = lanes / 2; mask > 0; mask >>= 1) most = fmaxf(most, shuffle_xor(most, mask));
        const Scale scale(bits(most));
#pragma unroll
        for (int i = 0; i < lane_quads; i++) {
            const int column = 4 * (lane + i * lanes);
            if (column < width) four(begin + column) = operand(x[i], scale.up);
        }
        if (lane == 0) row_scales[row] = scale.down;
    }
}

// Which columns of a quad dropout keeps, in two rows: a lane's and its neighbour's. Each of the two lanes draws for one row.
struct Kept {
    uint32 mine, other;
    bool odd;

    __device__ __forceinline__ Kept() {}
    __device__ __forceinline__ Kept(const Parameters& p, const Product& product, int first, int m, int column) : odd(product.g & 1) {
        const int row = 8 * m + Product::atom(2 * product.t + odd);
        mine = drawn(p, first + row, column / 4, p.dropout_site);
        other = bits(shuffle_xor(number(mine), 4));
    }
    // Returns whether dropout keeps column j of a lane's two in row i of the two.
    __device__ __forceinline__ bool operator()(int i, int j) const { return ((i == odd) ? mine : other) >> (2 * odd + j) & 1; }
};

// Applies what follows the product to the `count` rows from `first` on. product.sum then holds what is written.
__device__ __forceinline__ void finish(const Parameters& p, Product& product, const float* row_scales, int first, int count) {
#pragma unroll
    for (int c = 0; c < COLUMN_TILES; c++) {
        if (product.column + c >= out_chunks) continue;
        const int column = 16 * (product.column + c) + 2 * product.g;
        const float2 scale = __ldg(reinterpret_cast<const float2*>(p.scales + column));
        const bool inside = column < out_stride;
        float bias[2];
#pragma unroll
        for (int j = 0; j < 2; j++) bias[j] = p.bias != nullptr && column + j < OUT ? __ldg(p.bias + column + j) : 0.0f;
#pragma unroll
        for (int m = 0; m < Product::groups; m++) {
            const Kept kept = DROPOUT ? Kept(p, product, first, m, column) : Kept();
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int row = Product::atom(2 * product.t + i);
                const size_t offset = size_t(first + row) * out_stride + column + 8 * m * out_stride;
                const bool there = 8 * m + row < count && inside;
                const float down = row_scales[8 * m + row];
                float v[2] = {fmaf(product.sum[c][m][i], down * scale.x, bias[0]), fmaf(product.sum[c][m][2 + i], down * scale.y, bias[1])};
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    if (RELU) v[j] = relu(v[j]);
                    if (DROPOUT) v[j] = kept(i, j) || v[j] != v[j] ? v[j] * p.dropout_scale : 0.0f;
                }
                if (ADD && there) {
                    const float2 more = __ldg(reinterpret_cast<const float2*>(p.add + offset));
                    v[0] += more.x, v[1] += more.y;
                }
                if (MASK && there) {
                    const float2 value = __ldg(reinterpret_cast<const float2*>(p.mask + offset));
                    v[0] = value.x > 0.0f ? v[0] * p.mask_scale : 0.0f, v[1] = value.y > 0.0f ? v[1] * p.mask_scale : 0.0f;
                }
                if (there) two(p.out + offset) = make_float2(v[0], v[1]);
                product.sum[c][m][i] = v[0], product.sum[c][m][2 + i] = v[1];
            }
        }
    }
}

__device__ __forceinline__ void write_zeros(float* out, int first, int end) {
    for (int quad = threadIdx.x; quad < (end - first) * (out_stride / 4); quad += threads) four(out + size_t(first) * out_stride + 4 * quad) = nothing();
}

#if MOMENTS
#include "product_moments.cuh"
#endif

extern "C" __global__ void __launch_bounds__(threads, MIN_BLOCKS) product_rows(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    float* scales = reinterpret_cast<float*>(memory);  // [2, rows]
    float* tiles = scales + 2 * rows;                  // [1 or 2, rows, stride]: the second where a block has several
    const int num_rows = num_real(p.atoms, p.bonds, p.num_rows), step = gridDim.x * rows;
    int first = blockIdx.x * rows;
    const auto left = [&] { return min(rows, num_rows - first); };
    Product product;
#if MOMENTS
    ColumnSums sums;
#endif
    product.start(p.fragments, 0, chunks, chunks, out_chunks);
    wait_for_previous();
    copy_rows(p, tiles, first, left());
    for (int current = 0; first < num_rows; current ^= 1) {
        float *tile = tiles + current * rows * stride, *row_scales = scales + current * rows;
        const int begin = first, count = left();
        wait_for_copies();
        convert_rows(tile, row_scales, count);
        __syncthreads();  // also waits until all are done with the previous tile
        first += step;
        if (first < num_rows) copy_rows(p, tiles + (current ^ 1) * rows * stride, first, left());
        product.zero();
        product.multiply(tile);
        if (first < num_rows) product.start(p.fragments, 0, chunks, chunks, out_chunks);
        finish(p, product, row_scales, begin, count);
#if MOMENTS
        sums.add(product, count);
#endif
        if (count < rows) write_zeros(p.out, num_rows, min(begin + rows, p.num_rows));
    }
    for (; first < p.num_rows; first += step) write_zeros(p.out, first, min(first + rows, p.num_rows));
#if MOMENTS
    find_statistics(p.norm, sums, product, num_rows, tiles);
#endif
}
