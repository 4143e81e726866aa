// Gradients of matrices and biases in one launch: dW = G^T x, and the sums of G's columns over the real rows. The work is cut into TILE x
// TILE blocks and parts of the rows. The block that finishes a tile last adds its parts up in order.
//
// Macros: PRECISION, TILE (32, 64 or 96), MAX_PRODUCTS.
#include "arrivals.cuh"
#include "product_weights.cuh"
#include "quads.cuh"
#include "sums.cuh"
#include "product_weights_structs.h"  // molgcn/ops/layer_network/products_arguments.py

constexpr int at_once = 32;  // rows taken at a time
constexpr int stride = TILE + 8;
constexpr int blocks = TILE / 32;  // 16 x 16 blocks of a warp in each direction
constexpr int threads = 128;
constexpr int copies = at_once * TILE / 4 / threads;  // of a thread
constexpr int mine = blocks * blocks * 2;             // float4 of a thread's sums
constexpr int partial_size = 4 * mine * threads + TILE;

struct Operand {  // TILE columns from `column` on, of rows of `row_stride`
    const float* begin;
    int row_stride, column;

    // Starts to copy rows from `first` on into the tile; writes zeros from `end` on.
    __device__ __forceinline__ void copy(float* tile, int first, int end) const {
#pragma unroll
        for (int i = 0; i < copies; i++) {
            const int item = threadIdx.x + threads * i, row = item / (TILE / 4), at = 4 * (item % (TILE / 4));
            const bool there = first + row < end && column + at < row_stride;
            copy16(tile + row * stride + at, there ? begin + size_t(first + row) * row_stride + column + at : begin, there);
        }
    }
};

// Reads columns 2 g and 2 g + 1 of the block of 16 columns at `tile`, for rows first + 4 e + t.
__device__ __forceinline__ void across_rows(float (&v)[2][4], const float* tile, int first, int g, int t) {
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const float2 x = *reinterpret_cast<const float2*>(tile + (first + 4 * e + t) * stride + 2 * g);
        v[0][e] = x.x, v[1][e] = x.y;
    }
}

extern "C" __global__ void __launch_bounds__(threads, blocks > 2 ? 2 : 3) product_weights(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    float* tiles = reinterpret_cast<float*>(memory);  // [2, 2, at_once, stride]: G and x, now and next
    int* flag = reinterpret_cast<int*>(tiles + 4 * at_once * stride);
    int number = 0;
    while (number + 1 < p.num_products && p.products[number + 1].first_block <= static_cast<int>(blockIdx.x)) number++;
    const Product& it = p.products[number];
    const int index = blockIdx.x - it.first_block, tile = index % it.num_tiles, split = index / it.num_tiles;
    const int across = (it.out + TILE - 1) / TILE, out = TILE * (tile % across), in = TILE * (tile / across);
    const bool has_matrix = it.grad_weight != nullptr, has_bias = it.grad_bias != nullptr && in == 0;
    const Operand g_rows = {it.gradient, (it.out + 3) / 4 * 4, out}, x_rows = {it.source, (it.in + 3) / 4 * 4, in};

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane >> 2, t = lane & 3;
    const int row = warp / 2 * 16 * blocks, column = warp % 2 * 16 * blocks;
    const int num_rows = num_real(it.atoms, it.bonds, it.num_rows), end = min(num_rows, (split + 1) * it.rows_per_split);
    float sum[blocks][blocks][2][4] = {}, bias[blocks][2] = {};
    int first = split * it.rows_per_split, current = 0;
    const auto copy = [&](int from) {
        float* to = tiles + current * 2 * at_once * stride;
        g_rows.copy(to, from, end);
        if (has_matrix) x_rows.copy(to + at_once * stride, from, end);
        current ^= 1;
    };
    wait_for_previous();
    copy(first);
#pragma unroll 1
    for (; first < end; first += at_once) {
        const float *left = tiles + (current ^ 1) * 2 * at_once * stride, *right = left + at_once * stride;
        wait_for_copies();
        __syncthreads();
        copy(first + at_once);
        float part[blocks][blocks][2][4] = {}, bias_part[blocks][2] = {};  // the tensor cores round sums towards zero: short ones only
#pragma unroll
        for (int step = 0; step < at_once; step += 16) {
            Left a[blocks];
#pragma unroll
            for (int i = 0; i < blocks; i++) {
                float v[2][4];
                across_rows(v, left + row + 16 * i, step, g, t);
                a[i] = Left(v);
#pragma unroll
                for (int j = 0; j < 2; j++) bias_part[i][j] += (v[j][0] + v[j][1]) + (v[j][2] + v[j][3]);
            }
#pragma unroll
            for (int i = 0; has_matrix && i < blocks; i++) {
                float v[2][4];
                across_rows(v, right + column + 16 * i, step, g, t);
                const Right b[2] = {Right(v[0]), Right(v[1])};
                multiply_add([&](int m, int j) -> float(&)[4] { return part[m][i][j]; }, a, b);
            }
        }
#pragma unroll
        for (int i = 0; i < blocks * blocks * 8; i++) (&sum[0][0][0][0])[i] += (&part[0][0][0][0])[i];
#pragma unroll
        for (int i = 0; i < blocks * 2; i++) (&bias[0][0])[i] += (&bias_part[0][0])[i];
    }
    const bool keeps_bias = has_bias && column == 0 && t == 0;
#pragma unroll
    for (int i = 0; i < blocks * 2; i++) {
        float& x = (&bias[0][0])[i];
        x = over_four_lanes(x);
    }

    float4 value[mine];
#pragma unroll
    for (int i = 0; i < mine; i++) {
        const float* s = &sum[0][0][0][0] + 4 * i;  // [m][column block][j]
        value[i] = make_float4(s[0], s[1], s[2], s[3]);
    }
    const int offset = 4 * threadIdx.x, bias_offset = 4 * mine * threads + row + 2 * g;
    const auto leave = [&](float* to) {
        if (has_matrix) {
#pragma unroll
            for (int i = 0; i < mine; i++) four(to + offset + 4 * i * threads) = value[i];
        }
        if (keeps_bias) {
#pragma unroll
            for (int i = 0; i < blocks; i++) two(to + bias_offset + 16 * i) = make_float2(bias[i][0], bias[i][1]);
        }
    };
    // Adds up the sums of parts, in order.
    const auto collect = [&](const float* from, int parts) {
#pragma unroll
        for (int i = 0; i < mine; i++) value[i] = nothing();
#pragma unroll
        for (int i = 0; i < blocks * 2; i++) (&bias[0][0])[i] = 0.0f;
#pragma unroll 2
        for (int part = 0; part < parts; part++, from += partial_size) {
            if (has_matrix) {
#pragma unroll
                for (int i = 0; i < mine; i++) add(value[i], load4_past_l1(from + offset + 4 * i * threads));
            }
            if (keeps_bias) {
#pragma unroll
                for (int i = 0; i < blocks * 2; i++) (&bias[0][0])[i] += load_past_l1(from + bias_offset + 16 * (i / 2) + i % 2);
            }
        }
    };
    // Adds parts up in groups, then the groups; the blocks that arrive last do it.
    const int per_group = it.splits_per_group, groups = parts_of(it.splits, per_group), group = split / per_group;
    float* to = it.partial + size_t(tile) * (it.splits + groups) * partial_size;
    float* from = to + size_t(group) * per_group * partial_size;
    uint32* arrivals = it.arrivals + tile * (groups + 1) + group;
    int parts = part_size(it.splits, per_group, group), index_of_part = split;
#pragma unroll 1
    for (int rest = it.splits > 1 ? groups > 1 ? 2 : 1 : 0; rest > 0; rest--) {
        leave(to + size_t(index_of_part) * partial_size);
        if (!last_to_arrive(arrivals, parts, flag)) return;
        collect(from, parts);
        to += size_t(it.splits) * partial_size;
        from = to, arrivals += groups - group, parts = groups, index_of_part = group;
    }
#pragma unroll
    for (int i = 0; has_matrix && i < mine; i++) {
        const int j = i % 2, k = i / 2 % blocks, m = i / 2 / blocks;
#pragma unroll
        for (int e = 0; e < 4; e++) {  // rows 2 g + e / 2, columns 4 t + 2 (e % 2) + j
            const int to_out = out + row + 16 * m + 2 * g + e / 2, to_in = in + column + 16 * k + 4 * t + 2 * (e % 2) + j;
            if (to_out < it.out && to_in < it.in) it.grad_weight[size_t(to_out) * it.in + to_in] = at(value[i], e);
        }
    }
#pragma unroll
    for (int i = 0; i < blocks * 2; i++) {
        const int to_out = out + row + 16 * (i / 2) + 2 * g + i % 2;
        if (keeps_bias && to_out < it.out) it.grad_bias[to_out] = (&bias[0][0])[i];
    }
}
