// Gradients of several matrices and biases: dW = G^T x, and the sums of G's columns over the real rows. The work is cut into square tiles
// of the gradients and splits of the rows.
//
// A block has GROUPS of CHUNKS warps. A group takes every GROUPS-th `at_once` rows of the block's split, and its warps share the tile: a
// warp has OUT_BLOCKS x `in_blocks` blocks of 16 x 16. The next rows are on their way meanwhile, in a ring of STAGES. Groups are added up
// in shared memory, splits by part_sums.cu, all in order.
//
// Macros: PRECISION, CHUNKS (16 rows or columns of a tile), OUT_BLOCKS, GROUPS, STAGES, MAX_PRODUCTS.
#include "product_weights.cuh"
#include "product_weights_structs.h"  // molgcn/ops/layer_network/products_arguments.py

// steps: of 16 rows, whose operands a warp holds together; more than 16 warps have registers for those of one
constexpr int at_once = 32, steps = OUT_BLOCKS == 1 && CHUNKS * GROUPS <= 16 ? 2 : 1;
constexpr int side = 16 * CHUNKS, out_side = side, in_side = side;  // of a tile
constexpr int in_blocks = CHUNKS / OUT_BLOCKS, threads = 32 * CHUNKS;  // of a warp and a group
constexpr int stride = side + 8, tile_numbers = at_once * stride;  // lanes that read two columns of four rows use all banks

#include "weight_parts.cuh"

constexpr int group_numbers = STAGES * 2 * tile_numbers > sums_numbers ? STAGES * 2 * tile_numbers : sums_numbers;  // in shared memory

// Reads columns 2 g and 2 g + 1 of the block of 16 columns at `tile`, for rows 4 e + t.
__device__ __forceinline__ void across_rows(float (&v)[2][4], const float* tile, int g, int t) {
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const float2 x = *reinterpret_cast<const float2*>(tile + (4 * e + t) * stride + 2 * g);
        v[0][e] = x.x, v[1][e] = x.y;
    }
}

extern "C" __global__ void __launch_bounds__(GROUPS * threads, 1) product_weights(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    float* shared = reinterpret_cast<float*>(memory);  // of a group: [STAGES][2][tile_numbers], G and x; at last [sums_numbers]
    const Tile tile(p);
    const Product& it = tile.it;
    const int group = threadIdx.x / threads, thread = threadIdx.x % threads, lane = thread % 32, warp = thread / 32, g = lane >> 2, t = lane & 3;
    const int row = warp / OUT_BLOCKS * 16 * OUT_BLOCKS, column = warp % OUT_BLOCKS * 16 * in_blocks;  // of the warp in the tile
    const TileRows<side, stride> g_rows(it.gradient, it.out, tile.out, thread), x_rows(it.source, it.in, tile.in, thread);
    const int end = tile.end();
    float* stages = shared + group * group_numbers;
    int first = tile.begin() + group * at_once, next = first, to = 0;
    const auto copy = [&] {
        float* stage = stages + to * 2 * tile_numbers;
        if (next < end) {
            g_rows.copy(stage, next, end);
            if (tile.has_matrix) x_rows.copy(stage + tile_numbers, next, end);
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
                if (!tile.has_matrix) continue;
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
    tile.write(shared, group_numbers);
}
