// Weight gradients of several layers in one launch: dW = G^T H over all atoms, in TILE x TILE blocks and `splits` shares of the atoms. The
// block that finishes a tile last adds its shares up in order.
//
// x = high + low, both bf16, and x y = high high + high low + low high. This keeps float32's range, and 16 bits of each number, which suffice
// where no later layer sees the result. With PRECISION_BF16 there is only high. A thread copies rows to shared memory some steps ahead. It
// splits the numbers that it copied into high and low, which all warps read.
//
// Macros: HIDDEN, PRECISION, TILE (32, 64, 96 or 128), STAGES (steps whose rows are on their way), MIN_BLOCKS (on a multiprocessor), MAX_LAYERS.
#include "precision.cuh"
#include "quads.cuh"
#include "gcn_layer_weights_structs.h"  // molgcn/ops/gcn_layers_arguments.py

constexpr int width = (HIDDEN + 15) / 16 * 16;
constexpr int atoms = 32;  // taken at a time
constexpr int parts = PRECISION == PRECISION_BF16 ? 1 : 2;
constexpr int stride = TILE / 2 + 4;  // words, of two columns each, from atom to atom: eight atoms side by side use all banks
constexpr int plane = atoms * stride, operand = parts * plane;  // words of a part, and of an operand
constexpr int row_warps = TILE > 64 ? TILE / 32 : 2, column_warps = TILE > 96 ? 4 : 2;
constexpr int threads = 32 * row_warps * column_warps;
constexpr int row_blocks = TILE / 16 / row_warps, column_blocks = TILE / 16 / column_warps;  // 16 x 16 blocks of a warp
constexpr int in_row = TILE / 4, quads = atoms * in_row / threads;  // of four columns: in a row, and those that a thread copies
constexpr int stage = atoms * TILE;  // numbers of an operand
constexpr int across = (width + TILE - 1) / TILE;

struct Operand {  // TILE columns from `column` on, of rows of `row_width`
    const float* begin;
    int row_width, column;

    static __device__ __forceinline__ int row(int i) { return threadIdx.x / in_row + threads / in_row * i; }
    static __device__ __forceinline__ int first_column() { return 4 * (threadIdx.x % in_row); }

    // Starts to copy the thread's share of the rows from `first` on; zeros from `end` on.
    __device__ __forceinline__ void copy(float* to, int first, int end) const {
#pragma unroll
        for (int i = 0; i < quads; i++) {
            const bool there = first + row(i) < end && column + first_column() < row_width;
            copy16(to + 4 * (threadIdx.x + threads * i), there ? begin + size_t(first + row(i)) * row_width + column + first_column() : begin, there);
        }
    }
    // Writes the parts of what the thread has copied.
    static __device__ __forceinline__ void split(const float* from, float* to) {
#pragma unroll
        for (int i = 0; i < quads; i++) {
            const float4 x = *reinterpret_cast<const float4*>(from + 4 * (threadIdx.x + threads * i));
            uint32 high[2], low[2];
            split_pair(x.x, x.y, high[0], low[0]), split_pair(x.z, x.w, high[1], low[1]);
            float* words = to + row(i) * stride + first_column() / 2;
            two(words) = make_float2(number(high[0]), number(high[1]));
            if (parts == 2) two(words + plane) = make_float2(number(low[0]), number(low[1]));
        }
    }
};

extern "C" __global__ void __launch_bounds__(threads, MIN_BLOCKS) gcn_layer_weights(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    float* tiles = reinterpret_cast<float*>(memory);  // [2, 2, parts, atoms, stride]: G and H, now and next
    float* stages = tiles + 4 * operand;  // [STAGES, 2, stage]: G and H
    int* flag = reinterpret_cast<int*>(stages + STAGES * 2 * stage);
    const int index = blockIdx.x % p.num_tiles, split = blockIdx.x / p.num_tiles;
    const int first_across = (p.in_width + TILE - 1) / TILE, first_tiles = p.first_layer == 0 ? first_across * across : 0;
    const bool is_first = index < first_tiles;
    const int rest = index - first_tiles, layer = is_first ? 0 : rest / (across * across) + (p.first_layer == 0);  // counted from first_layer
    const int tile = is_first ? index : rest % (across * across);
    const int out = TILE * (tile % across), in = TILE * (tile / across);
    const size_t before = size_t(p.num_nodes) * width * layer;
    const Operand g_rows = {p.gradients + before, width, out};
    const Operand h_rows = is_first ? Operand{p.first_input, p.in_width, in} : Operand{p.inputs + before, width, in};

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane >> 2, t = lane & 3;
    const int row = warp / column_warps * 16 * row_blocks, column = warp % column_warps * 16 * column_blocks;
    const int num_nodes = __ldg(p.ptr + p.num_graphs), end = min(num_nodes, (split + 1) * p.atoms_per_split);
    float sum[row_blocks][column_blocks][2][4] = {};
    // Where the rows begin whose addresses the lane gives to load_transposed. G: columns 0 to 7, then 8 to 15, of atoms 0 to 7, then of atoms
    // 8 to 15. H: atoms 0 to 7, then 8 to 15, of columns 0 to 7, then of columns 8 to 15.
    const int g_begin = (lane % 8 + lane / 16 * 8) * stride + row / 2 + lane / 8 % 2 * 4;
    const int h_begin = (lane % 8 + lane / 8 % 2 * 8) * stride + column / 2 + lane / 16 * 4;
    int first = split * p.atoms_per_split, next = first, current = 0, place = 0;
    const auto copy = [&] {
        g_rows.copy(stages + 2 * stage * place, next, end), h_rows.copy(stages + 2 * stage * place + stage, next, end);
        commit_copies();
        next += atoms, place = place + 1 < STAGES ? place + 1 : 0;
    };
    const auto split_copied = [&](float* to) {  // and starts the next copy to the same place
        wait_for_copies_but<STAGES - 1>();
        Operand::split(stages + 2 * stage * place, to), Operand::split(stages + 2 * stage * place + stage, to + operand);
        copy();
    };
    wait_for_previous();
#pragma unroll
    for (int i = 0; i < STAGES; i++) copy();
    split_copied(tiles);
#pragma unroll 1
    for (; first < end; first += atoms, current ^= 1) {
        const float *left = tiles + 2 * operand * current, *right = left + operand;
        __syncthreads();  // this step's parts are there, and those of the step before are read no more
        split_copied(tiles + 2 * operand * (current ^ 1));
        float part[row_blocks][column_blocks][2][4] = {};  // the tensor cores round sums towards zero: short ones only
#pragma unroll
        for (int step = 0; step < atoms; step += 16) {
            uint32 a[parts][row_blocks][4], b[parts][column_blocks][4];
#pragma unroll
            for (int i = 0; i < parts; i++) {
#pragma unroll
                for (int m = 0; m < row_blocks; m++) load_transposed(a[i][m], left + i * plane + g_begin + step * stride + 8 * m);
#pragma unroll
                for (int k = 0; k < column_blocks; k++) load_transposed(b[i][k], right + i * plane + h_begin + step * stride + 8 * k);
            }
#pragma unroll
            for (int pass = parts == 2 ? 0 : 2; pass < 3; pass++)  // low high, high low, high high: small products first
#pragma unroll
                for (int k = 0; k < column_blocks; k++)
#pragma unroll
                    for (int j = 0; j < 2; j++)
#pragma unroll
                        for (int m = 0; m < row_blocks; m++) {
                            const uint32(&of)[4] = b[pass == 1 ? parts - 1 : 0][k];
                            const uint32 eight[2] = {of[2 * j], of[2 * j + 1]};
                            mma_bf16(part[m][k][j], a[pass == 0 ? parts - 1 : 0][m], eight);
                        }
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
        for (int i = 0; i < mine; i++) value[i] = nothing();
#pragma unroll 1
        for (int share = 0; share < p.splits; share++, from += 4 * distance)
#pragma unroll
            for (int i = 0; i < mine; i++) add(value[i], load4_past_l1(from + 4 * i * threads));
    }
    const int columns_in = p.first_layer + layer == 0 ? p.num_features : HIDDEN;
#pragma unroll
    for (int i = 0; i < mine; i++) {
        const int j = i % 2, k = i / 2 % column_blocks, m = i / 2 / column_blocks;
        const float v[4] = {value[i].x, value[i].y, value[i].z, value[i].w};
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int to_out = out + row + 16 * m + g + e / 2 * 8, to_in = in + column + 16 * k + 8 * j + 2 * t + e % 2;
            if (to_out < HIDDEN && to_in < columns_in) p.grad_weights[layer][size_t(to_out) * columns_in + to_in] = v[e];
        }
    }
}
