// The norm at the end of a layer: its columns in shared memory, and the parts in which launches leave what it needs of all rows.
//
// A launch that writes rows leaves a part for each of its blocks: the moments of its rows' columns, or in backward two sums of each column.
// The next launch merges the parts, every block the columns that it needs and all in the same order.
#pragma once
#include "epilogue.cuh"
#include "moments.cuh"
#include "layer_end_structs.h"  // molgcn/ops/layer_network/layer_ends_cuda.py

// Numbers of a part: means and squared distances, or the two sums, and how many rows it has.
__device__ __forceinline__ constexpr int padded_columns(int width) { return (width + 15) / 16 * 16; }
__device__ __forceinline__ constexpr int part_numbers(int width) { return 2 * padded_columns(width) + 4; }
// Numbers of shared memory in which a block of `threads` merges parts of `columns`.
__device__ __forceinline__ constexpr int merge_numbers(int threads, int columns) { return 9 * (4 * threads < columns ? columns / 4 : threads) + columns; }

struct ColumnMoments {
    real count = 0, mean = 0, squares = 0;  // sum of squared distances from the mean

    // Adds to three sums, of distances from `origin`, of their squares and of rows. A near origin keeps large means from cancelling.
    __device__ __forceinline__ void add_to(real (&sums)[3], real origin) const {
        add_moments(sums[0], sums[1], origin, mean, squares, count);
        sums[2] += count;
    }
    template <class Sum>
    static __device__ __forceinline__ ColumnMoments of(const Sum (&sums)[3], real origin) {
        const auto all = moments_of<Sum>(sums[0], sums[1], sums[2], origin);
        return {static_cast<real>(sums[2]), static_cast<real>(all.mean), static_cast<real>(all.squares)};
    }
    __device__ __forceinline__ bool is_empty() const { return count == real(0); }
    __device__ __forceinline__ real origin() const { return mean; }
};
// The gradients of a norm's bias and weight in a column: the sums of the gradient g of its output, and of g times the normalised input.
struct NormSums {
    real bias = 0, weight = 0;
    __device__ __forceinline__ void add(real g, real normal) { bias += g, weight = multiply_add(g, normal, weight); }
    __device__ __forceinline__ void merge(const NormSums& x) { bias += x.bias, weight += x.weight; }
    __device__ __forceinline__ void add_to(real (&sums)[3], real) const { sums[0] += bias, sums[1] += weight; }
    template <class Sum>
    static __device__ __forceinline__ NormSums of(const Sum (&sums)[3], real) { return {static_cast<real>(sums[0]), static_cast<real>(sums[1])}; }
    __device__ __forceinline__ bool is_empty() const { return false; }
    __device__ __forceinline__ real origin() const { return 0; }
};

// The columns of a norm that a block needs, in shared memory.
struct Columns {
    real* at;  // [6][count]: the numbers of `Column`, and the means of the two sums
    int count;
};

// Returns how many threads side by side have a column when a block's threads have added up parts.
__device__ __forceinline__ int lanes_of_column(int columns, int threads) {
    int lanes = 1;
    while (2 * lanes * columns <= threads && lanes < 32) lanes *= 2;
    return lanes;
}

// Returns whether there is such a part, of a norm over `num_rows` rows. Blocks that begin beyond the last row have left nothing.
__device__ __forceinline__ bool has_part(const LayerEnd& it, int number, int num_rows) {
    return number < it.num_parts && number * it.rows_of_part < max(num_rows, 1);
}

// Returns how many rows a part is of.
__device__ __forceinline__ real rows_of(const LayerEnd& it, int number) { return it.parts[size_t(number + 1) * part_numbers(it.width) - 4]; }

// Adds up parts in order, some at every thread. add(sums, quad, first, second, rows) adds a part's numbers of a quad of columns to 9 sums;
// use(column, sums) then receives 2 sums of each column and the last one, which are added up across threads as Sum.
template <class Sum, class Add, class Use>
__device__ __forceinline__ void merge_parts(const LayerEnd& it, int num_rows, int first, int columns, real* scratch, Add add, Use use) {
    constexpr int together = 4;  // parts that are under way
    const int quads = columns / 4, threads = blockDim.x, shares = min(it.num_parts, max(1, threads / quads)), step = part_numbers(it.width);
#pragma unroll 1
    for (int item = threadIdx.x; item < shares * quads; item += threads) {
        const int quad = item % quads;
        real sums[9] = {};
        const real* from = it.parts + first + 4 * quad;
        for (int part_number = item / quads; has_part(it, part_number, num_rows); part_number += together * shares) {
            Quad part[together][2];
            real rows[together];
#pragma unroll
            for (int i = 0; i < together; i++)
                if (has_part(it, part_number + i * shares, num_rows)) {
                    const real* at = from + size_t(part_number + i * shares) * step;
                    part[i][0] = load(at), part[i][1] = load(at + padded_columns(it.width)), rows[i] = rows_of(it, part_number + i * shares);
                }
#pragma unroll
            for (int i = 0; i < together; i++)
                if (has_part(it, part_number + i * shares, num_rows)) add(sums, quad, part[i][0], part[i][1], rows[i]);
        }
#pragma unroll
        for (int i = 0; i < 9; i++) scratch[9 * item + i] = sums[i];
    }
    __syncthreads();
    const int lanes = lanes_of_column(columns, threads);
#pragma unroll 1
    for (int item = threadIdx.x; (item - static_cast<int>(threadIdx.x % 32)) / lanes < columns; item += threads) {  // whole warps continue
        const int column = item / lanes;
        Sum sums[3] = {};
        for (int share = item % lanes; column < columns && share < shares; share += lanes) {
            const real* left = scratch + 9 * (share * quads + column / 4);
            sums[0] += left[column % 4], sums[1] += left[4 + column % 4], sums[2] += left[8];
        }
        for (int mask = 1; mask < lanes; mask *= 2)
#pragma unroll
            for (int i = 0; i < 3; i++) sums[i] += shuffle_xor(sums[i], mask);
        if (item % lanes == 0 && column < columns) use(column, sums);
    }
}

// Calls use(column, moments) for columns from `first` on. Distances from the mean of part `near`, which has rows unless there are none, keep
// large means from cancelling.
template <class Sum = real, class Use>
__device__ __forceinline__ void merge_moments(const LayerEnd& it, int num_rows, int first, int columns, real* scratch, Use use, int near = 0) {
    const real* origin = it.parts + size_t(near) * part_numbers(it.width) + first;
    const auto add = [&](real (&sums)[9], int quad, const Quad& mean, const Quad& squares, real count) {
        const Quad from = load(origin + 4 * quad);
#pragma unroll
        for (int e = 0; e < 4; e++) add_moments(sums[e], sums[4 + e], from.e[e], mean.e[e], squares.e[e], count);
        sums[8] += count;
    };
    const auto use_sums = [&](int column, const Sum (&sums)[3]) { use(column, ColumnMoments::of(sums, origin[column])); };
    merge_parts<Sum>(it, num_rows, first, columns, scratch, add, use_sums);
}
template <class Sum = real, class Use>
__device__ __forceinline__ void merge_sums(const LayerEnd& it, int num_rows, int first, int columns, real* scratch, Use use) {
    const auto add = [](real (&sums)[9], int, const Quad& bias, const Quad& weight, real) {
#pragma unroll
        for (int e = 0; e < 4; e++) sums[e] += bias.e[e], sums[4 + e] += weight.e[e];
    };
    merge_parts<Sum>(it, num_rows, first, columns, scratch, add, [&](int column, const Sum (&sums)[3]) { use(column, NormSums::of(sums, real(0))); });
}

__device__ __forceinline__ real inverse_deviation(const LayerEnd& it, real variance) {
    return real(1) / root(variance + static_cast<real>(it.eps));
}

// What a column of a norm has in global memory besides its moments. Threads ask for it before they merge parts.
struct OfColumn {
    real weight = 0, bias = 0, mean = 0, variance = 0;

    __device__ __forceinline__ OfColumn() {}
    __device__ __forceinline__ OfColumn(const LayerEnd& it, int column, bool running) {
        if (column >= it.width) return;
        weight = it.weight[column], bias = it.bias[column];
        if (running) mean = it.mean[column], variance = it.variance[column];
    }
};

// Stores a column's mean and 1 / deviation, from the biased variance, and updates its running statistics.
__device__ __forceinline__ void keep_moments(const LayerEnd& it, int column, const OfColumn& old, const ColumnMoments& x, real deviation) {
    const Running now = Running{old.mean, old.variance}.after({x.mean, x.squares}, x.count, static_cast<real>(it.momentum));
    it.moments[column] = x.mean;
    it.moments[it.width + column] = deviation;
    it.new_mean[column] = now.mean, it.new_variance[column] = now.variance;
}

// Brings the columns of a norm from `first` on into shared memory, in two steps. The first does not read what the previous kernel writes, and
// may come before the wait for it. All threads of the block take part.
struct LoadColumns {
    const LayerEnd& it;
    Columns to;
    int first, mine_column;
    bool backward, keeps;  // keeps: stores the batch's statistics, or the gradients of weight and bias
    OfColumn mine;

    // `columns` is a multiple of four. In backward the moments are known, and `it.parts` are sums.
    __device__ __forceinline__ LoadColumns(const LayerEnd& it, int first, int columns, real* shared, bool backward, bool keeps)
        : it(it), to{shared, columns}, first(first), mine_column(threadIdx.x / lanes_of_column(columns, blockDim.x)), backward(backward), keeps(keeps && it.parts != nullptr) {
        if (backward || it.parts == nullptr)
            load_known();
        else
            mine = OfColumn(it, first + mine_column, keeps);
    }
    // Merges the parts that the previous kernel left. `stride` is the distance between two rows, `num_rows` their number.
    __device__ __forceinline__ Columns merged(int stride, int num_rows, real* scratch) {
        const int columns = min(to.count, stride - first);
        if (it.parts != nullptr && backward) {
            const real count = static_cast<real>(max(num_rows, 1));
            merge_sums(it, num_rows, first, columns, scratch, [&](int i, const NormSums& x) {
                to.at[4 * to.count + i] = x.bias / count, to.at[5 * to.count + i] = x.weight / count;
                if (keeps && first + i < it.width) it.grad_bias[first + i] = x.bias, it.grad_weight[first + i] = x.weight;
            });
        } else if (it.parts != nullptr) {
            merge_moments(it, num_rows, first, columns, scratch, [&](int i, const ColumnMoments& x) {
                const real deviation = inverse_deviation(it, x.squares / (x.count > real(0) ? x.count : real(1)));
                if (i != mine_column) mine = OfColumn(it, first + i, keeps);
                put(i, mine, x.mean, deviation);
                if (keeps && first + i < it.width) keep_moments(it, first + i, mine, x, deviation);
            });
        }
        __syncthreads();
        return to;
    }

private:
    __device__ __forceinline__ void load_known() {
#pragma unroll 1
        for (int i = threadIdx.x; i < to.count; i += blockDim.x) {
            const int column = first + i;
            const bool there = column < it.width, batch = it.moments != nullptr;
            const OfColumn its(it, column, !batch);
            const real mean = !there ? real(0) : batch ? it.moments[column] : its.mean;
            put(i, its, mean, !there ? real(0) : batch ? it.moments[it.width + column] : inverse_deviation(it, its.variance));
        }
    }
    __device__ __forceinline__ void put(int i, const OfColumn& its, real mean, real deviation) {
        to.at[i] = mean, to.at[to.count + i] = deviation, to.at[2 * to.count + i] = deviation * its.weight, to.at[3 * to.count + i] = its.bias;
    }
};
