// What the kernels of gradients of weights share: which product a block belongs to, the copies of its rows, and the end of its work, where
// the sums of its groups of warps are added up and written.
//
// Constants: out_side, in_side (of a block's tile of a gradient), at_once (rows of a step), threads (of a group). Macros: GROUPS.
#pragma once
#include "quads.cuh"

constexpr int sums_stride = in_side + 4, sums_numbers = out_side * (sums_stride + 1);  // of a group: rows of the tile, then the bias

// A block's tile of a gradient, and its split of the rows.
struct Tile {
    const Product& it;
    int split, out, in, outs, ins;  // the first row and column, and how many there are
    int rows, rows_per_split;       // the real rows
    bool has_matrix, has_bias;

    __device__ __forceinline__ explicit Tile(const Parameters& p) : it(entry_of_block(p.products, p.num_products)) {
        const int index = blockIdx.x - it.first_block, tile = index % it.num_tiles, across = (it.out + out_side - 1) / out_side;
        split = index / it.num_tiles, out = out_side * (tile % across), in = in_side * (tile / across);
        outs = min(out_side, it.out - out), ins = min(in_side, it.in - in);
        rows = num_real(it.atoms, it.bonds, it.num_rows), rows_per_split = (rows + it.splits * at_once - 1) / (it.splits * at_once) * at_once;
        has_matrix = it.grad_weight != nullptr, has_bias = it.grad_bias != nullptr && in == 0;
    }
    __device__ __forceinline__ int begin() const { return split * rows_per_split; }
    __device__ __forceinline__ int end() const { return min(rows, (split + 1) * rows_per_split); }
    // Adds up the sums of all groups, which begin every `group_numbers` in shared memory, and writes them.
    __device__ __forceinline__ void write(const float* shared, int group_numbers) const {
        const auto of_groups = [&](int at) {
            float x = 0.0f;
#pragma unroll
            for (int i = 0; i < GROUPS; i++) x += shared[i * group_numbers + at];
            return x;
        };
        const size_t before = size_t(split) * ((has_matrix ? it.out * it.in : 0) + (it.grad_bias == nullptr ? 0 : it.out));  // numbers of other splits
        float *matrix = it.grad_weight + before, *bias = it.grad_bias + before;
        const int lane = threadIdx.x % 32;
#pragma unroll 1
        for (int i = threadIdx.x / 32; has_matrix && i < outs; i += blockDim.x / 32)
#pragma unroll
            for (int j = lane; j < in_side; j += 32)
                if (j < ins) matrix[size_t(out + i) * it.in + in + j] = of_groups(i * sums_stride + j);
        for (int i = threadIdx.x; has_bias && i < outs; i += blockDim.x) bias[out + i] = of_groups(out_side * sums_stride + i);
    }
};

// A tile's SIDE columns of rows, which lie STRIDE numbers apart in shared memory. A thread brings four of them in every `together`-th row.
template <int SIDE, int STRIDE>
struct TileRows {
    static constexpr int quads = SIDE / 4, most = threads / quads, together = most >= 32 ? 32 : most >= 16 ? 16 : most >= 8 ? 8 : most >= 4 ? 4 : most >= 2 ? 2 : 1;
    const float* from;  // the thread's first four columns
    int row_stride, row, to;
    bool inside;

    __device__ __forceinline__ TileRows(const float* begin, int width, int first_column, int thread)
        : row_stride((width + 3) / 4 * 4), row(thread / quads), to(row * STRIDE + 4 * (thread % quads)) {
        const int column = first_column + 4 * (thread % quads);
        inside = column < row_stride, from = begin + size_t(row) * row_stride + column;
    }
    // Starts to copy the rows from `first` on. Writes zeros from `end` on, and from the last column on.
    __device__ __forceinline__ void copy(float* tile, int first, int end) const {
        if (threads > quads * together && row >= together) return;
        const float* at = from + size_t(first) * row_stride;
        const int count = inside ? end - first - row : 0;
#pragma unroll
        for (int i = 0; i < at_once; i += together, at += together * row_stride) copy16_last(tile + to + i * STRIDE, at, i < count);
    }
};
