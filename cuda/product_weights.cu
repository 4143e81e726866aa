// Gradients of several matrices and biases: dW = G^T x, and the sums of G's columns over the real rows. The work is cut into square tiles
// of the gradients and splits of the rows.
//
// A block has GROUPS of CHUNKS warps. A group takes every GROUPS-th `at_once` rows of the block's split, and its warps share the tile: a
// warp has OUT_BLOCKS x `in_blocks` blocks of 16 x 16. The next rows are on their way meanwhile, in a ring of STAGES. Groups are added up
// in shared memory, splits by part_sums.cu, all in order.
//
// Macros: PRECISION, CHUNKS (16 rows or columns of a tile), OUT_BLOCKS, GROUPS, STAGES, MAX_PRODUCTS.
#include "product_weights.cuh"
#include "quads.cuh"
#include "product_weights_structs.h"  // molgcn/ops/layer_network/products_arguments.py

constexpr int at_once = 32, steps = OUT_BLOCKS == 1 ? 2 : 1;  // steps: of 16 rows, whose operands a warp holds together
constexpr int side = 16 * CHUNKS, in_blocks = CHUNKS / OUT_BLOCKS, threads = 32 * CHUNKS;  // of a tile, a warp and a group
constexpr int stride = side + 8, tile_numbers = at_once * stride;  // lanes that read two columns of four rows use all banks
constexpr int sums_stride = side + 4, sums_numbers = side * (sums_stride + 1);
constexpr int group_numbers = STAGES * 2 * tile_numbers > sums_numbers ? STAGES * 2 * tile_numbers : sums_numbers;  // in shared memory

// A tile's columns of rows. A thread brings four of them in every eighth row.
struct Rows {
    const float* begin;
    int row_stride, column, row, to;  // the thread's first column and row, and where its columns are in the tile

    __device__ __forceinline__ Rows(const float* begin, int width, int first_column, int thread)
        : begin(begin), row_stride((width + 3) / 4 * 4), row(thread / (side / 4)), to(4 * (thread % (side / 4))) {
        column = first_column + to;
    }
    // Starts to copy the rows from `first` on. Writes zeros from `end` on.
    __device__ __forceinline__ void copy(float* tile, int first, int end) const {
        const float* from = begin + size_t(first + row) * row_stride + column;
#pragma unroll
        for (int i = 0; i < at_once; i += 8) {
            const bool there = column < row_stride && first + row + i < end;
            copy16_last(tile + (row + i) * stride + to, there ? from + size_t(i) * row_stride : begin, there);
        }
    }
};
// Reads columns 2 g and 2 g + 1 of the block of 16 columns at `tile`, for rows 4 e + t.
__device__ __forceinline__ void across_rows(float (&v)[2][4], const float* tile, int g, int t) {
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const float2 x = *reinterpret_cast<const float2*>(tile + (4 * e + t) * stride + 2 * g);
        v[0][e] = x.x, v[1][e] = x.y;
    }
}

// Returns the product that a block belongs to.
__device__ __forceinline__ const Product& product_of(const Parameters& p) {
    int number = 0;
    while (number + 1 < p.num_products && p.products[number + 1].first_block <= static_cast<int>(blockIdx.x)) number++;
    return p.products[number];
}

extern "C" __global__ void __launch_bounds__(GROUPS * threads, 1) product_weights(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    float* shared = reinterpret_cast<float*>(memory);  // of a group: [STAGES][2][tile_numbers], G and x; at last [sums_numbers]
    const Product& it = product_of(p);
    const int index = blockIdx.x - it.first_block, tile = index % it.num_tiles, split = index / it.num_tiles;
    const int across = (it.out + side - 1) / side, out = side * (tile % across), in = side * (tile / across);
    const bool has_matrix = it.grad_weight != nullptr, has_bias = it.grad_bias != nullptr && in == 0;

    const int group = threadIdx.x / threads, thread = threadIdx.x % threads, lane = thread % 32, warp = thread / 32, g = lane >> 2, t = lane & 3;
    const int row = warp / OUT_BLOCKS * 16 * OUT_BLOCKS, column = warp % OUT_BLOCKS * 16 * in_blocks;  // of the warp in the tile
    const Rows g_rows(it.gradient, it.out, out, thread), x_rows(it.source, it.in, in, thread);
    const int end = min(num_real(it.atoms, it.bonds, it.num_rows), (split + 1) * it.rows_per_split);
    float* stages = shared + group * group_numbers;
    int first = split * it.rows_per_split + group * at_once, next = first, to = 0;
    const auto copy = [&] {
        float* stage = stages + to * 2 * tile_numbers;
        if (next < end) {
            g_rows.copy(stage, next, end);
            if (has_matrix) x_rows.copy(stage + tile_numbers, next, end);
        }
        commit_copies();
        next += GROUPS * at_once, to = to + 1 < STAGES ? to + 1 : 0;
    };
    float sum[OUT_BLOCKS][in_blocks][2][4] = {}, bias[OUT_BLOCKS][2] = {};
    wait_for_previous();
#pragma unroll
    for (int i = 0; i + 1 < STAGES; i++) copy();
    int current = 0;
#pragma unroll 1
    for (; first < end; first += GROUPS * at_once) {
        const float *left = stages + current * 2 * tile_numbers, *right = left + tile_numbers;
        wait_for_copies_but<STAGES - 2>();
        barrier(1 + group, threads);  // also waits until all are done with the stage that is written next
        copy();
        current = current + 1 < STAGES ? current + 1 : 0;
#pragma unroll
        for (int from = 0; from < at_once; from += 16 * steps) {
            Right b[steps][OUT_BLOCKS][2];
#pragma unroll
            for (int k = 0; k < steps; k++)
#pragma unroll
                for (int i = 0; i < OUT_BLOCKS; i++) {
                    float v[2][4];
                    across_rows(v, left + (from + 16 * k) * stride + row + 16 * i, g, t);
#pragma unroll
                    for (int j = 0; j < 2; j++) b[k][i][j] = Right(v[j]), bias[i][j] += (v[j][0] + v[j][1]) + (v[j][2] + v[j][3]);
                }
#pragma unroll
            for (int i = 0; i < in_blocks; i++) {
                if (!has_matrix) continue;
                float part[OUT_BLOCKS][2][4] = {};  // the tensor cores round sums towards zero: short ones only
#pragma unroll
                for (int k = 0; k < steps; k++) {
                    float v[2][4];
                    across_rows(v, right + (from + 16 * k) * stride + column + 16 * i, g, t);
                    multiply_add([&](int n, int j) -> float(&)[4] { return part[n][j]; }, Left(v), b[k]);
                }
#pragma unroll
                for (int k = 0; k < OUT_BLOCKS * 8; k++) (&sum[k / 8][i][0][0])[k % 8] += (&part[0][0][0])[k];
            }
        }
    }

    wait_for_copies();
    __syncthreads();  // the stages are not read any more
    float *sums = stages, *bias_sums = sums + side * sums_stride;
#pragma unroll
    for (int k = 0; k < OUT_BLOCKS * in_blocks * 8; k++) {  // x's columns are rows of the products
        const int m = k / (8 * in_blocks), i = k / 8 % in_blocks, j = k / 4 % 2, e = k % 4;
        sums[(row + 16 * m + 4 * t + 2 * (e % 2) + j) * sums_stride + column + 16 * i + 2 * g + e / 2] = sum[m][i][j][e];
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
        for (int i = 0; i < GROUPS; i++) x += shared[i * group_numbers + at];
        return x;
    };
    const size_t before = size_t(split) * ((has_matrix ? it.out * it.in : 0) + (it.grad_bias == nullptr ? 0 : it.out));  // numbers of other splits
    float *matrix = it.grad_weight + before, *bias_gradient = it.grad_bias + before;
    const int outs = min(side, it.out - out), ins = min(side, it.in - in);
#pragma unroll 1
    for (int i = threadIdx.x / 32; has_matrix && i < outs; i += GROUPS * CHUNKS)
#pragma unroll
        for (int j = lane; j < side; j += 32)
            if (j < ins) matrix[size_t(out + i) * it.in + in + j] = of_groups(i * sums_stride + j);
    for (int i = threadIdx.x; has_bias && i < outs; i += GROUPS * threads) bias_gradient[out + i] = of_groups(side * sums_stride + i);
}
