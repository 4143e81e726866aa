// The moments of the columns of product_rows.cu over all real rows, for the batch norm that follows.
#pragma once
#include "arrivals.cuh"
#include "sums.cuh"

constexpr int part_numbers = 2 * out_width + 4;  // numbers of a part: means and squared distances of its columns, and how many rows it has

// A lane's sums over a block's rows, for the columns that it holds of the product.
struct ColumnSums {
    Distances all[COLUMN_TILES][2];
    int count = 0;

    __device__ __forceinline__ void add(const Product& product, int more) {
#pragma unroll
        for (int c = 0; c < COLUMN_TILES; c++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                if (count == 0) {  // the origin: the column's first number, which is near the mean and the same in all lanes that share the column
                    float origin = product.t == 0 ? product.sum[c][0][2 * j] : 0.0f;
                    origin += shuffle_xor(origin, 1);
                    all[c][j].origin = origin + shuffle_xor(origin, 2);
                }
                Distances tile = {all[c][j].origin};
#pragma unroll
                for (int m = 0; m < Product::groups; m++)
#pragma unroll
                    for (int i = 0; i < 2; i++)
                        if (8 * m + Product::atom(2 * product.t + i) < more) tile.add(product.sum[c][m][2 * j + i]);
                all[c][j].sum += tile.sum, all[c][j].squares += tile.squares;
            }
        count += more;
    }
    __device__ __forceinline__ void leave(const Product& product, float* part) {
#pragma unroll
        for (int c = 0; c < COLUMN_TILES; c++) {
            if (product.column + c >= out_chunks) continue;
            float mean[2], squares[2];
#pragma unroll
            for (int j = 0; j < 2; j++) {
                Distances sums = all[c][j];
#pragma unroll
                for (int mask = 1; mask < 4; mask <<= 1) sums.sum += shuffle_xor(sums.sum, mask), sums.squares += shuffle_xor(sums.squares, mask);
                const Moments moments = sums.moments(count);
                mean[j] = moments.mean, squares[j] = moments.squares;
            }
            if (product.t > 0) continue;
            const int column = 16 * (product.column + c) + 2 * product.g;
            two(part + column) = make_float2(mean[0], mean[1]);
            two(part + out_width + column) = make_float2(squares[0], squares[1]);
        }
        if (threadIdx.x == 0) part[2 * out_width] = static_cast<float>(count);
    }
};

// Merges parts and calls done(column, moments, rows). Threads share the parts, through shared memory.
template <class Done>
__device__ __forceinline__ void merge(const float* from, int parts, float* shared, Done done) {
    constexpr int quads = out_width / 4, shares = threads < quads ? 1 : threads / quads;
    for (int item = threadIdx.x; item < shares * quads; item += threads) {
        const int quad = item % quads, share = item / quads;
        const float4 origin = load4_past_l1(from + 4 * quad);
        Distances all[4] = {{origin.x}, {origin.y}, {origin.z}, {origin.w}};
        float rows_of_all = 0.0f;
#pragma unroll 8
        for (int i = share; i < parts; i += shares) {
            const float* part = from + size_t(i) * part_numbers;
            const float4 mean = load4_past_l1(part + 4 * quad), squares = load4_past_l1(part + out_width + 4 * quad);
            const float count = load_past_l1(part + 2 * out_width);
            rows_of_all += count;
#pragma unroll
            for (int e = 0; e < 4; e++) all[e].add(at(mean, e), at(squares, e), count);
        }
        float* to = shared + 12 * item;
        four(to) = make_float4(all[0].sum, all[1].sum, all[2].sum, all[3].sum);
        four(to + 4) = make_float4(all[0].squares, all[1].squares, all[2].squares, all[3].squares);
        to[8] = rows_of_all;
        if (share == 0) four(shared + 12 * shares * quads + 4 * quad) = origin;
    }
    __syncthreads();
    for (int column = threadIdx.x; column < out_width; column += threads) {
        Distances all = {shared[12 * shares * quads + column]};
        float count = 0.0f;
        for (int share = 0; share < shares; share++) {
            const float* left = shared + 12 * (share * quads + column / 4);
            all.sum += left[column % 4], all.squares += left[4 + column % 4], count += left[8];
        }
        done(column, all.moments(static_cast<int>(count)), count);
    }
}

// Stores the mean and 1 / deviation, and updates the running statistics as torch does: the biased variance normalises, the running one is
// unbiased.
__device__ __forceinline__ void keep_statistics(const Norm& norm, int column, const Moments& moments, float count) {
    if (column >= OUT) return;
    norm.moments[column] = moments.mean;
    norm.moments[OUT + column] = 1.0f / sqrtf(moments.squares / fmaxf(count, 1.0f) + norm.eps);
    const float mean = __ldg(norm.mean + column), variance = __ldg(norm.variance + column), unbiased = moments.squares / fmaxf(count - 1.0f, 1.0f);
    norm.new_mean[column] = count > 0.0f ? (1.0f - norm.momentum) * mean + norm.momentum * moments.mean : mean;
    norm.new_variance[column] = count > 0.0f ? (1.0f - norm.momentum) * variance + norm.momentum * unbiased : variance;
}

// Merges the blocks' sums in groups, then the groups; the blocks that arrive last do it.
__device__ __forceinline__ void find_statistics(const Norm& norm, ColumnSums& sums, const Product& product, int num_rows, float* shared) {
    int* flag = reinterpret_cast<int*>(shared);
    shared += 4;
    const int all_parts = min(static_cast<int>(gridDim.x), parts_of(num_rows, rows)), groups = parts_of(all_parts, norm.blocks_per_group);
    const int group = blockIdx.x / norm.blocks_per_group, begin = group * norm.blocks_per_group;
    if (num_rows == 0 && blockIdx.x == 0)
        for (int column = threadIdx.x; column < OUT; column += threads) keep_statistics(norm, column, {0.0f, 0.0f}, 0.0f);
    if (sums.count == 0) return;
    sums.leave(product, norm.partial + size_t(blockIdx.x) * part_numbers);
    const float* from = norm.partial + size_t(begin) * part_numbers;
    float* to = norm.group_sums + size_t(group) * part_numbers;
    uint32* arrivals = norm.arrivals + group;
    int parts = part_size(all_parts, norm.blocks_per_group, group);
#pragma unroll 1
    for (int left = groups > 1; last_to_arrive(arrivals, parts, flag); left--) {
        merge(from, parts, shared, [&](int column, const Moments& moments, float count) {
            if (left == 0) return keep_statistics(norm, column, moments, count);
            to[column] = moments.mean, to[out_width + column] = moments.squares;
            if (column == 0) to[2 * out_width] = count;
        });
        if (left == 0) return;
        from = norm.group_sums, parts = groups, arrivals = norm.arrivals + groups;
    }
}
