// Weight gradients of several layers in one launch: dW = G^T H over all atoms, in TILE x TILE blocks and `splits` parts of the atoms. The
// block that finishes a tile last adds its parts up in order.
//
// Macros: HIDDEN, PRECISION, TILE (32, 64, 96 or 128), MAX_LAYERS.
#include "matrix.cuh"
#include "gcn_layer_weights_structs.h"  // molgcn/ops/gcn_layers_arguments.py

constexpr int width = (HIDDEN + 15) / 16 * 16;
constexpr int atoms = 32;  // taken at a time
constexpr int stride = TILE + 8;
constexpr int threads = TILE > 96 ? 256 : 128;
constexpr int row_warps = threads / 64, column_warps = 2;
constexpr int row_blocks = TILE / 16 / row_warps, column_blocks = TILE / 16 / column_warps;  // 16 x 16 blocks of a warp
constexpr int quads = atoms * TILE / 4 / threads;  // loads of a thread
constexpr int across = (width + TILE - 1) / TILE;

struct Operand {  // TILE columns from `column` on, of rows of `row_width`
    const float* begin;
    int row_width, column;

    // Starts to copy rows from `first` on into the tile; writes zeros from `end` on.
    __device__ __forceinline__ void copy(float* tile, int first, int end) const {
#pragma unroll
        for (int i = 0; i < quads; i++) {
            const int item = threadIdx.x + threads * i, row = item / (TILE / 4), at = 4 * (item % (TILE / 4));
            const bool there = first + row < end && column + at < row_width;
            copy16(tile + row * stride + at, there ? begin + size_t(first + row) * row_width + column + at : begin, there);
        }
    }
};

// Reads columns 2 g and 2 g + 1 of the block of 16 columns at `tile`, for atoms first + 4 e + t.
__device__ __forceinline__ void across_atoms(float (&v)[2][4], const float* tile, int first, int g, int t) {
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const float2 x = *reinterpret_cast<const float2*>(tile + (first + 4 * e + t) * stride + 2 * g);
        v[0][e] = x.x, v[1][e] = x.y;
    }
}

extern "C" __global__ void __launch_bounds__(threads, TILE > 96 ? 1 : TILE > 64 ? 2 : 3) gcn_layer_weights(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    float* tiles = reinterpret_cast<float*>(memory);  // [2, 2, atoms, stride]: G and H, now and next
    int* flag = reinterpret_cast<int*>(tiles + 4 * atoms * stride);
    const int index = blockIdx.x % p.num_tiles, split = blockIdx.x / p.num_tiles;
    const int first_across = (p.in_width + TILE - 1) / TILE, first_tiles = p.first_layer == 0 ? first_across * across : 0;
    const bool is_first = index < first_tiles;
    const int rest = index - first_tiles, layer = is_first ? 0 : rest / (across * across) + (p.first_layer == 0);  // counted from first_layer
    const int tile = is_first ? index : rest % (across * across);
    const int out = TILE * (tile % across), in = TILE * (tile / across);
    const size_t plane = size_t(p.num_nodes) * width * layer;
    const Operand g_rows = {p.gradients + plane, width, out};
    const Operand h_rows = is_first ? Operand{p.first_input, p.in_width, in} : Operand{p.inputs + plane, width, in};

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane >> 2, t = lane & 3;
    const int row = warp / column_warps * 16 * row_blocks, column = warp % column_warps * 16 * column_blocks;
    const int num_nodes = __ldg(p.ptr + p.num_graphs), end = min(num_nodes, (split + 1) * p.atoms_per_split);
    float sum[row_blocks][column_blocks][2][4] = {};
    int first = split * p.atoms_per_split, current = 0;
    const auto copy = [&](int from) {
        float* to = tiles + current * 2 * atoms * stride;
        g_rows.copy(to, from, end), h_rows.copy(to + atoms * stride, from, end);
        current ^= 1;
    };
    wait_for_previous();
    copy(first);
#pragma unroll 1
    for (; first < end; first += atoms) {
        const float *left = tiles + (current ^ 1) * 2 * atoms * stride, *right = left + atoms * stride;
        wait_for_copies();
        __syncthreads();
        copy(first + atoms);
        float part[row_blocks][column_blocks][2][4] = {};  // the tensor cores round sums towards zero: short ones only
#pragma unroll
        for (int step = 0; step < atoms; step += 16) {
            matrix::Left a[row_blocks];
            matrix::Right b[column_blocks][2];
#pragma unroll
            for (int i = 0; i < column_blocks; i++) {
                float v[2][4];
                if (i < row_blocks) across_atoms(v, left + row + 16 * i, step, g, t), a[i] = matrix::Left(v);
                across_atoms(v, right + column + 16 * i, step, g, t);
                b[i][0] = matrix::Right(v[0]), b[i][1] = matrix::Right(v[1]);
            }
            matrix::multiply_add<row_blocks, column_blocks>([&](int m, int i) -> float(&)[2][4] { return part[m][i]; }, a, b);
        }
#pragma unroll
        for (int i = 0; i < row_blocks * column_blocks * 8; i++) (&sum[0][0][0][0])[i] += (&part[0][0][0][0])[i];
    }

    constexpr int mine = row_blocks * column_blocks * 2;  // float4 of a thread
    float4* all = reinterpret_cast<float4*>(p.partial);
    const size_t distance = size_t(p.num_tiles) * mine * threads;
    float4 value[mine];
#pragma unroll
    for (int i = 0; i < mine; i++) {
        const float* s = &sum[0][0][0][0] + 4 * i;  // [m][column block][j]
        value[i] = make_float4(s[0], s[1], s[2], s[3]);
    }
    if (p.splits > 1) {
        float4* to = all + split * distance + size_t(index) * mine * threads + threadIdx.x;
#pragma unroll
        for (int i = 0; i < mine; i++) to[i * threads] = value[i];
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) *flag = atomicAdd(p.arrivals + index, 1u) == static_cast<uint32>(p.splits - 1);
        __syncthreads();
        if (!*flag) return;
        __threadfence();
        const float* from = reinterpret_cast<const float*>(all + size_t(index) * mine * threads + threadIdx.x);
#pragma unroll
        for (int i = 0; i < mine; i++) {
            float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 4
            for (int part = 0; part < p.splits; part++) {
                const float4 x = load4_past_l1(from + 4 * (part * distance + i * threads));
                total.x += x.x, total.y += x.y, total.z += x.z, total.w += x.w;
            }
            value[i] = total;
        }
    }
    const int columns_in = p.first_layer + layer == 0 ? p.num_features : HIDDEN;
#pragma unroll
    for (int i = 0; i < mine; i++) {
        const int j = i % 2, k = i / 2 % column_blocks, m = i / 2 / column_blocks;
        const float v[4] = {value[i].x, value[i].y, value[i].z, value[i].w};
#pragma unroll
        for (int e = 0; e < 4; e++) {  // rows 2 g + e / 2, columns 4 t + 2 (e % 2) + j
            const int to_out = out + row + 16 * m + 2 * g + e / 2, to_in = in + column + 16 * k + 4 * t + 2 * (e % 2) + j;
            if (to_out < HIDDEN && to_in < columns_in) p.grad_weights[layer][size_t(to_out) * columns_in + to_in] = v[e];
        }
    }
}
