// Gradients of matrices and biases in one launch: dW = G^T x, and the sums of G's columns over the real rows. The work is cut into tiles
// of the gradients and splits of the rows.
//
// A block has GROUPS of warps. Each takes every GROUPS-th `at_once` rows of the block's split, and its warps share the tile: a warp has
// OUT_BLOCKS x IN_BLOCKS blocks of 16 x 16. The next rows are on their way meanwhile, in a ring of STAGES. Groups are added up in shared
// memory, splits by `product_weights_sums`, all in order.
//
// Macros: PRECISION, OUT_BLOCKS, IN_BLOCKS, OUT_WARPS, IN_WARPS, GROUPS, STAGES, MAX_PRODUCTS.
#include "product_weights.cuh"
#include "quads.cuh"
#include "product_weights_structs.h"  // molgcn/ops/layer_network/products_arguments.py

constexpr int at_once = 32;
constexpr int out_tile = 16 * OUT_BLOCKS * OUT_WARPS, in_tile = 16 * IN_BLOCKS * IN_WARPS;
constexpr int threads = 32 * OUT_WARPS * IN_WARPS;  // of a group
constexpr int sums_lanes = 32, sums_shares = 8;     // of a block that adds splits up: numbers side by side, and threads of each

// COLUMNS columns of rows in shared memory.
template <int COLUMNS>
struct TileOf {
    static constexpr int stride = COLUMNS + 8, numbers = at_once * stride;  // lanes that read two columns of four rows use all banks
    static constexpr int quads = COLUMNS / 4, rows_at_once = threads / quads;

    const float* begin;
    int row_stride, column, thread;

    // Starts to copy columns from `column` on of the rows from `first` on. Writes zeros from `end` on.
    __device__ __forceinline__ void copy(float* tile, int first, int end) const {
        const int row = thread / quads, at = 4 * (thread % quads);
        if (row >= rows_at_once) return;
        const bool inside = column + at < row_stride;
        const float* from = begin + size_t(first + row) * row_stride + column + at;
#pragma unroll
        for (int i = 0; i < at_once; i += rows_at_once) {
            if (at_once % rows_at_once != 0 && row + i >= at_once) continue;
            const bool there = inside && first + row + i < end;
            copy16(tile + (row + i) * stride + at, there ? from + size_t(i) * row_stride : begin, there);
        }
    }
};
using OutTile = TileOf<out_tile>;
using InTile = TileOf<in_tile>;
constexpr int stage_numbers = OutTile::numbers + InTile::numbers, sums_stride = in_tile + 4, group_sums = out_tile * (sums_stride + 1);

// Reads columns 2 g and 2 g + 1 of the block of 16 columns at `tile`, for rows 4 e + t.
template <class Tile>
__device__ __forceinline__ void across_rows(float (&v)[2][4], const float* tile, int g, int t) {
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const float2 x = *reinterpret_cast<const float2*>(tile + (4 * e + t) * Tile::stride + 2 * g);
        v[0][e] = x.x, v[1][e] = x.y;
    }
}

// Returns the product that a block belongs to. first_block(product) is the product's first block.
template <class FirstBlock>
__device__ __forceinline__ const Product& product_of(const Parameters& p, FirstBlock first_block) {
    int number = 0;
    while (number + 1 < p.num_products && first_block(p.products[number + 1]) <= static_cast<int>(blockIdx.x)) number++;
    return p.products[number];
}
__device__ __forceinline__ int matrix_numbers(const Product& it) { return it.grad_weight == nullptr ? 0 : it.out * it.in; }
__device__ __forceinline__ int gradient_numbers(const Product& it) { return matrix_numbers(it) + (it.grad_bias == nullptr ? 0 : it.out); }

extern "C" __global__ void __launch_bounds__(GROUPS * threads, 1) product_weights(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    float* shared = reinterpret_cast<float*>(memory);  // [GROUPS][STAGES][stage_numbers], then [GROUPS][group_sums]
    const Product& it = product_of(p, [](const Product& product) { return product.first_block; });
    const int index = blockIdx.x - it.first_block, tile = index % it.num_tiles, split = index / it.num_tiles;
    const int across = (it.out + out_tile - 1) / out_tile, out = out_tile * (tile % across), in = in_tile * (tile / across);
    const bool has_matrix = it.grad_weight != nullptr, has_bias = it.grad_bias != nullptr && in == 0;

    const int group = threadIdx.x / threads, thread = threadIdx.x % threads, lane = thread % 32, warp = thread / 32, g = lane >> 2, t = lane & 3;
    const int row = warp / IN_WARPS * 16 * OUT_BLOCKS, column = warp % IN_WARPS * 16 * IN_BLOCKS;
    const OutTile g_rows = {it.gradient, (it.out + 3) / 4 * 4, out, thread};
    const InTile x_rows = {it.source, (it.in + 3) / 4 * 4, in, thread};
    const int end = min(num_real(it.atoms, it.bonds, it.num_rows), (split + 1) * it.rows_per_split);
    float* stages = shared + group * STAGES * stage_numbers;
    int first = split * it.rows_per_split + group * at_once, next = first, to = 0;
    const auto copy = [&] {
        float* stage = stages + to * stage_numbers;
        if (next < end) {
            g_rows.copy(stage, next, end);
            if (has_matrix) x_rows.copy(stage + OutTile::numbers, next, end);
        }
        commit_copies();
        next += GROUPS * at_once, to = to + 1 < STAGES ? to + 1 : 0;
    };
    float sum[OUT_BLOCKS][IN_BLOCKS][2][4] = {}, bias[OUT_BLOCKS][2] = {};
    wait_for_previous();
#pragma unroll
    for (int i = 0; i + 1 < STAGES; i++) copy();
    int current = 0;
#pragma unroll 1
    for (; first < end; first += GROUPS * at_once) {
        const float *left = stages + current * stage_numbers, *right = left + OutTile::numbers;
        wait_for_copies_but<STAGES - 2>();
        barrier(1 + group, threads);  // also waits until all are done with the stage that is written next
        copy();
        current = current + 1 < STAGES ? current + 1 : 0;
#pragma unroll
        for (int step = 0; step < at_once; step += 16) {
            Left a[OUT_BLOCKS];
#pragma unroll
            for (int i = 0; i < OUT_BLOCKS; i++) {
                float v[2][4];
                across_rows<OutTile>(v, left + step * OutTile::stride + row + 16 * i, g, t);
                a[i] = Left(v);
#pragma unroll
                for (int j = 0; j < 2; j++) bias[i][j] += (v[j][0] + v[j][1]) + (v[j][2] + v[j][3]);
            }
#pragma unroll
            for (int i = 0; i < IN_BLOCKS; i++) {
                if (!has_matrix) continue;
                float v[2][4];
                across_rows<InTile>(v, right + step * InTile::stride + column + 16 * i, g, t);
                const Right b[2] = {Right(v[0]), Right(v[1])};
                float part[OUT_BLOCKS][2][4] = {};  // the tensor cores round sums towards zero: short ones only
                multiply_add([&](int m, int j) -> float(&)[4] { return part[m][j]; }, a, b);
#pragma unroll
                for (int k = 0; k < OUT_BLOCKS * 8; k++) (&sum[k / 8][i][0][0])[k % 8] += (&part[0][0][0])[k];
            }
        }
    }

    wait_for_copies();
    __syncthreads();  // the stages are not read any more
    float *sums = shared + group * group_sums, *bias_sums = sums + out_tile * sums_stride;
#pragma unroll
    for (int k = 0; k < OUT_BLOCKS * IN_BLOCKS * 8; k++) {  // rows 2 g + e / 2, columns 4 t + 2 (e % 2) + j
        const int m = k / (8 * IN_BLOCKS), i = k / 8 % IN_BLOCKS, j = k / 4 % 2, e = k % 4;
        sums[(row + 16 * m + 2 * g + e / 2) * sums_stride + column + 16 * i + 4 * t + 2 * (e % 2) + j] = sum[m][i][j][e];
    }
#pragma unroll
    for (int i = 0; i < OUT_BLOCKS * 2; i++) {
        const float x = over_four_lanes((&bias[0][0])[i]);
        if (column == 0 && t == 0) bias_sums[row + 16 * (i / 2) + 2 * g + i % 2] = x;
    }
    __syncthreads();
    const auto of_groups = [&](int at) {
        float x = 0.0f;
#pragma unroll
        for (int i = 0; i < GROUPS; i++) x += shared[i * group_sums + at];
        return x;
    };
    float* partial = it.partial + size_t(split) * gradient_numbers(it);
    float *matrix = it.splits > 1 ? partial : it.grad_weight, *bias_gradient = it.splits > 1 ? partial + matrix_numbers(it) : it.grad_bias;
    const int outs = min(out_tile, it.out - out), ins = min(in_tile, it.in - in);
    for (int i = threadIdx.x; has_matrix && i < out_tile * in_tile; i += GROUPS * threads) {
        const int to_out = i / in_tile, to_in = i % in_tile;
        if (to_out < outs && to_in < ins) matrix[size_t(out + to_out) * it.in + in + to_in] = of_groups(to_out * sums_stride + to_in);
    }
    for (int i = threadIdx.x; has_bias && i < outs; i += GROUPS * threads) bias_gradient[out + i] = of_groups(out_tile * sums_stride + i);
}

// Adds up the splits of gradients that have several.
extern "C" __global__ void __launch_bounds__(sums_lanes* sums_shares) product_weights_sums(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    float* shared = reinterpret_cast<float*>(memory);  // [sums_shares][sums_lanes]
    const Product& it = product_of(p, [](const Product& product) { return product.first_sum; });
    const int lane = threadIdx.x % sums_lanes, share = threadIdx.x / sums_lanes, number = (blockIdx.x - it.first_sum) * sums_lanes + lane;
    const int numbers = gradient_numbers(it), of_matrix = matrix_numbers(it);
    wait_for_previous();
    float sum = 0.0f;
    if (number < numbers)
#pragma unroll 8
        for (int split = share; split < it.splits; split += sums_shares) sum += it.partial[size_t(split) * numbers + number];
    shared[threadIdx.x] = sum;
    __syncthreads();
    if (share > 0 || number >= numbers) return;
#pragma unroll
    for (int i = 1; i < sums_shares; i++) sum += shared[i * sums_lanes + lane];
    (number < of_matrix ? it.grad_weight[number] : it.grad_bias[number - of_matrix]) = sum;
}
