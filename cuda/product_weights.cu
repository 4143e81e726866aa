// Gradients of matrices and biases, all in one launch: dW = G^T x and the columns' sums of G over the real rows, in TILE x TILE blocks and parts of
// the rows. The block that finishes last with a tile adds the parts up in their order.
//
// Macros: PRECISION, TILE (32, 64 or 96), MAX_PRODUCTS.
#include "arrivals.cuh"
#include "product_weights.cuh"
#include "quads.cuh"
#include "sums.cuh"
#include "product_weights_structs.h"  // molgcn/ops/layer_network/products_arguments.py

constexpr int at_once = 32;  // rows
constexpr int stride = TILE + 8;
constexpr int small_stride = TILE + 2;  // of four numbers' small parts
constexpr int small_numbers = at_once / 4 * small_stride;
constexpr int blocks = TILE / 32;  // of 16 x 16, of a warp in each direction
constexpr int threads = 128;
constexpr int copies = at_once * TILE / 4 / threads;  // of a thread
constexpr int mine = blocks * blocks * 2;             // float4 of a thread's sums
constexpr int partial_size = 4 * mine * threads + TILE;

struct Columns {  // TILE of them from `column` on, of rows of `row_stride`
    const float* begin;
    int row_stride, column;

    // Rows from `first` on, on their way into the tile; zeros from `end` on
    __device__ __forceinline__ void copy(float* tile, int first, int end) const {
#pragma unroll
        for (int i = 0; i < copies; i++) {
            const int item = threadIdx.x + threads * i, row = item / (TILE / 4), at = 4 * (item % (TILE / 4));
            const bool there = first + row < end && column + at < row_stride;
            copy16(tile + row * stride + at, there ? begin + size_t(first + row) * row_stride + column + at : begin, there);
        }
    }
};

// The place of the small parts of rows first + 4 e + t: columns 2 g + j of 16 lie in the order 8 j + g, so that lanes read from different banks.
__device__ __forceinline__ int small_place(int first, int t, int column) {
    return (first / 4 + t) * small_stride + column / 16 * 16 + column % 2 * 8 + column % 16 / 2;
}
// Four numbers of a column, of rows first + 4 e + t
__device__ __forceinline__ void make_small(const float* tile, float4* small) {
#pragma unroll 4
    for (int item = threadIdx.x; item < at_once / 4 * TILE; item += threads) {
        const int group = item / TILE, place = item % TILE, column = place / 16 * 16 + 2 * (place % 8) + place % 16 / 8;
        const float* begin = tile + (group / 4 * 16 + group % 4) * stride + column;
        const float v[4] = {begin[0], begin[4 * stride], begin[8 * stride], begin[12 * stride]};
        small[group * small_stride + place] = small_parts(v);
    }
}
// Columns 2 g and 2 g + 1 of the block of 16 columns from `column` on, of rows first + 4 e + t
__device__ __forceinline__ void fetch(Operand (&to)[2], const float* tile, const float4* small, int first, int column, int g, int t) {
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const float2 x = *reinterpret_cast<const float2*>(tile + (first + 4 * e + t) * stride + column + 2 * g);
        to[0].v[e] = x.x, to[1].v[e] = x.y;
    }
#pragma unroll
    for (int j = 0; j < 2; j++)
        if (in_bf16) to[j].small = small[small_place(first, t, column + 2 * g + j)];
}

extern "C" __global__ void __launch_bounds__(threads, blocks > 2 ? 2 : blocks > 1 ? 3 : 5) product_weights(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    float* tiles = reinterpret_cast<float*>(memory);  // [2, 2, at_once, stride]: G and x, now and next
    float4* small = reinterpret_cast<float4*>(tiles + 4 * at_once * stride);  // [2, at_once / 4, small_stride]
    int* flag = reinterpret_cast<int*>(small + 2 * small_numbers);
    int number = 0;
    while (number + 1 < p.num_products && p.products[number + 1].first_block <= static_cast<int>(blockIdx.x)) number++;
    const Product& it = p.products[number];
    const int index = blockIdx.x - it.first_block, tile = index % it.num_tiles, split = index / it.num_tiles;
    const int across = (it.out + TILE - 1) / TILE, out = TILE * (tile % across), in = TILE * (tile / across);
    const bool has_matrix = it.source != nullptr, has_bias = it.grad_bias != nullptr && in == 0;
    const Columns g_rows = {it.gradient, (it.out + 3) / 4 * 4, out}, x_rows = {it.source, (it.in + 3) / 4 * 4, in};

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane >> 2, t = lane & 3;
    const int row = warp / 2 * 16 * blocks, column = warp % 2 * 16 * blocks;
    const int num_rows = num_real(it.atoms, it.bonds, it.num_rows), end = min(num_rows, (split + 1) * it.rows_per_split);
    float sum[blocks][blocks][2][4] = {}, bias[blocks][2] = {};
    int first = split * it.rows_per_split, turn = 0;
    const auto copy = [&](int from) {
        float* to = tiles + turn * 2 * at_once * stride;
        g_rows.copy(to, from, end);
        if (has_matrix) x_rows.copy(to + at_once * stride, from, end);
        turn ^= 1;
    };
    wait_for_previous();
    copy(first);
#pragma unroll 1
    for (; first < end; first += at_once) {
        const float *left = tiles + (turn ^ 1) * 2 * at_once * stride, *right = left + at_once * stride;
        wait_for_copies();
        __syncthreads();
        copy(first + at_once);
        if (in_bf16 && has_matrix) {
            make_small(left, small), make_small(right, small + small_numbers);
            __syncthreads();
        }
        float part[blocks][blocks][2][4] = {}, bias_part[blocks][2] = {};  // the tensor cores round sums towards zero: short ones only
#pragma unroll 1
        for (int step = 0; step < at_once; step += 16) {
            Operand a[blocks][2];
#pragma unroll
            for (int i = 0; i < blocks; i++) {
                fetch(a[i], left, small, step, row + 16 * i, g, t);
#pragma unroll
                for (int j = 0; j < 2; j++) bias_part[i][j] += (a[i][j].v[0] + a[i][j].v[1]) + (a[i][j].v[2] + a[i][j].v[3]);
            }
#pragma unroll
            for (int i = 0; has_matrix && i < blocks; i++) {
                Operand b[2];
                fetch(b, right, small + small_numbers, step, column + 16 * i, g, t);
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
        x += shuffle_xor(x, 1);
        x += shuffle_xor(x, 2);
    }

    float4 value[mine];
#pragma unroll
    for (int i = 0; i < mine; i++) {
        const float* s = &sum[0][0][0][0] + 4 * i;  // [m][column block][j]
        value[i] = make_float4(s[0], s[1], s[2], s[3]);
    }
    const int place = 4 * threadIdx.x, bias_place = 4 * mine * threads + row + 2 * g;
    const auto leave = [&](float* to) {
        if (has_matrix) {
#pragma unroll
            for (int i = 0; i < mine; i++) four(to + place + 4 * i * threads) = value[i];
        }
        if (keeps_bias) {
#pragma unroll
            for (int i = 0; i < blocks; i++) two(to + bias_place + 16 * i) = make_float2(bias[i][0], bias[i][1]);
        }
    };
    // Sums of parts, in their order
    const auto collect = [&](const float* from, int parts) {
#pragma unroll
        for (int i = 0; i < mine; i++) value[i] = nothing();
#pragma unroll
        for (int i = 0; i < blocks * 2; i++) (&bias[0][0])[i] = 0.0f;
#pragma unroll 2
        for (int part = 0; part < parts; part++, from += partial_size) {
            if (has_matrix) {
#pragma unroll
                for (int i = 0; i < mine; i++) add(value[i], load4_past_l1(from + place + 4 * i * threads));
            }
            if (keeps_bias) {
#pragma unroll
                for (int i = 0; i < blocks * 2; i++) (&bias[0][0])[i] += load_past_l1(from + bias_place + 16 * (i / 2) + i % 2);
            }
        }
    };
    // Parts in groups, and the groups, by those blocks that arrive last
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
