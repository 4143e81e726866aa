// Rows times a matrix, and all that follows one by one: out = mask (dropout(relu(x W^T + b)) + a), each part where it is wanted. For the norm that
// comes next also the columns' moments over the real rows.
//
// A block brings `rows` whole rows into shared memory as halves; its warps share the columns of the result.
//
// Macros: IN, OUT (columns), PRECISION, DROPOUT, and of the product WARP_COLUMNS, ROW_TILES, COLUMN_TILES, MIN_BLOCKS (of a multiprocessor).
#include "halves.cuh"
#include "matrix.cuh"
#include "philox.cuh"
#include "quads.cuh"
#include "sums.cuh"
#include "product_rows_structs.h"  // molgcn/ops/layer_network/products_arguments.py

constexpr int chunks = (IN + 15) / 16, width = 16 * chunks;  // of a row in shared memory
constexpr int stride = width % 32 == 0 ? width + 16 : width;  // two rows side by side use all banks
constexpr bool wide = chunks >= 16;                           // the product's loop is then unrolled in parts, for NVRTC's time
constexpr int rows = 16 * ROW_TILES, threads = 32 * WARP_COLUMNS;
constexpr int in_stride = (IN + 3) / 4 * 4, out_stride = (OUT + 3) / 4 * 4, out_chunks = (OUT + 15) / 16, out_width = 16 * out_chunks;

#include "halves_product.cuh"

__device__ constexpr int loads_of(int lanes) { return (width / 4 + lanes - 1) / lanes * lanes; }
__device__ constexpr int fewest(int a, int b) { return loads_of(a) <= loads_of(b) ? a : b; }
constexpr int lanes = fewest(32, fewest(16, fewest(8, 4)));  // that bring a row
constexpr int turns = (width / 4 + lanes - 1) / lanes, teams = threads / lanes;

// A block's rows as halves, each with its scale; zeros from `count` on
__device__ __forceinline__ void bring_rows(const Parameters& p, float* tile, float* row_scales, int first, int count) {
    const int lane = threadIdx.x % lanes, team = threadIdx.x / lanes;
    constexpr int deep = turns >= 4 ? 1 : 2;  // rows under way together
    for (int top = team; top < rows; top += deep * teams) {  // all lanes of a warp go on together: it has whole teams
        float4 x[deep][turns];
#pragma unroll
        for (int j = 0; j < deep; j++)
#pragma unroll
            for (int i = 0; i < turns; i++) {
                const int row = top + j * teams, column = 4 * (lane + i * lanes);
                x[j][i] = row < count && column < in_stride ? load4(p.x + size_t(first + row) * in_stride + column) : nothing();
            }
#pragma unroll
        for (int j = 0; j < deep; j++) {
            const int row = top + j * teams;
            float most = 0.0f;
#pragma unroll
            for (int i = 0; i < turns; i++)
#pragma unroll
                for (int e = 0; e < 4; e++) most = fmaxf(most, fabsf(at(x[j][i], e)));
#pragma unroll
            for (int mask = lanes / 2; mask > 0; mask >>= 1) most = fmaxf(most, shuffle_xor(most, mask));
            if (row >= rows) continue;
            const Scale scale(bits(most));
#pragma unroll
            for (int i = 0; i < turns; i++) {
                const int column = 4 * (lane + i * lanes);
                if (column < width) four(tile + row * stride + column) = operand(x[j][i], scale.up);
            }
            if (lane == 0) row_scales[row] = scale.down;
        }
    }
}

// The columns that dropout keeps of a quad of columns in two rows, a lane's and its neighbour's: each of the two lanes draws for one row.
struct Kept {
    uint32 mine, other;
    bool odd;

    __device__ __forceinline__ Kept() {}
    __device__ __forceinline__ Kept(const Parameters& p, const Product& product, int first, int m, int column) : odd(product.g & 1) {
        const int row = 8 * m + Product::atom(2 * product.t + odd);
        const Words words = philox(first + row, column / 4, p.dropout_site, 0, *p.seed);
        mine = 0;
#pragma unroll
        for (int e = 0; e < 4; e++) mine |= uint32(words.word[e] >= p.dropout_threshold) << e;
        other = bits(shuffle_xor(number(mine), 4));
    }
    // Of row i of the two, column j of a lane's two
    __device__ __forceinline__ bool operator()(int i, int j) const { return ((i == odd) ? mine : other) >> (2 * odd + j) & 1; }
};

// What follows the product: writes a block's rows and leaves them in product.sum; zeros from `count` on.
__device__ __forceinline__ void finish(const Parameters& p, Product& product, const float* row_scales, int first, int count) {
    const int left = min(rows, p.num_rows - first);
#pragma unroll
    for (int c = 0; c < COLUMN_TILES; c++) {
        if (product.column + c >= out_chunks) continue;
        const int column = 16 * (product.column + c) + 2 * product.g;
        const float2 scale = __ldg(reinterpret_cast<const float2*>(p.scales + column));
        float bias[2];
#pragma unroll
        for (int j = 0; j < 2; j++) bias[j] = p.bias != nullptr && column + j < OUT ? __ldg(p.bias + column + j) : 0.0f;
#pragma unroll
        for (int m = 0; m < Product::groups; m++) {
            const Kept kept = DROPOUT ? Kept(p, product, first, m, column) : Kept();
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int row = 8 * m + Product::atom(2 * product.t + i);
                const float down = row_scales[row];
                const size_t place = size_t(first + row) * out_stride + column;
                const bool there = row < count && column < out_stride;
                float v[2] = {fmaf(product.sum[c][m][i], down * scale.x, bias[0]), fmaf(product.sum[c][m][2 + i], down * scale.y, bias[1])};
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    if (p.relu) v[j] = relu(v[j]);
                    if (DROPOUT) v[j] = kept(i, j) || v[j] != v[j] ? v[j] * p.dropout_scale : 0.0f;
                }
                if (p.add != nullptr && there) {
                    const float2 more = __ldg(reinterpret_cast<const float2*>(p.add + place));
                    v[0] += more.x, v[1] += more.y;
                }
                if (p.mask != nullptr && there) {
                    const float2 value = __ldg(reinterpret_cast<const float2*>(p.mask + place));
                    v[0] = value.x > 0.0f ? v[0] * p.mask_scale : 0.0f, v[1] = value.y > 0.0f ? v[1] * p.mask_scale : 0.0f;
                }
#pragma unroll
                for (int j = 0; j < 2; j++)
                    if (row >= count || column + j >= OUT) v[j] = 0.0f;
                if (row < left && column < out_stride) two(p.out + place) = make_float2(v[0], v[1]);
                product.sum[c][m][i] = v[0], product.sum[c][m][2 + i] = v[1];
            }
        }
    }
}

// Mean and squared distances of the columns of a block's `count` rows, as [2, out_width]
__device__ __forceinline__ void leave_moments(const Product& product, float* to, int count) {
#pragma unroll
    for (int c = 0; c < COLUMN_TILES; c++) {
        if (product.column + c >= out_chunks) continue;
        float mean[2], squares[2];
#pragma unroll
        for (int j = 0; j < 2; j++) {
            float origin = product.t == 0 ? product.sum[c][0][2 * j] : 0.0f;  // of the first row
            origin += shuffle_xor(origin, 1);
            origin += shuffle_xor(origin, 2);
            Distances all = {origin};
#pragma unroll
            for (int m = 0; m < Product::groups; m++)
#pragma unroll
                for (int i = 0; i < 2; i++)
                    if (8 * m + Product::atom(2 * product.t + i) < count) all.add(product.sum[c][m][2 * j + i]);
#pragma unroll
            for (int mask = 1; mask < 4; mask <<= 1) all.sum += shuffle_xor(all.sum, mask), all.squares += shuffle_xor(all.squares, mask);
            const Moments moments = all.moments(count);
            mean[j] = moments.mean, squares[j] = moments.squares;
        }
        if (product.t > 0) continue;
        const int column = 16 * (product.column + c) + 2 * product.g;
        two(to + column) = make_float2(mean[0], mean[1]);
        two(to + out_width + column) = make_float2(squares[0], squares[1]);
    }
}

// done(column, moments) of `count` rows from the moments of their parts, of `each` rows: threads share the parts, in shared memory.
template <class Done>
__device__ __forceinline__ void merge_moments(const float* from, int count, int each, float* shared, Done done) {
    constexpr int quads = out_width / 4, shares = threads < quads ? 1 : threads / quads;
    const int parts = parts_of(count, each);
    for (int item = threadIdx.x; item < shares * quads; item += threads) {
        const int quad = item % quads, share = item / quads;
        const float* begin = from + 4 * quad;
        const float4 origin = load4_past_l1(begin);
        Distances all[4] = {{origin.x}, {origin.y}, {origin.z}, {origin.w}};
#pragma unroll 8
        for (int part = share; part < parts; part += shares) {
            const float4 mean = load4_past_l1(begin + size_t(part) * 2 * out_width), squares = load4_past_l1(begin + size_t(part) * 2 * out_width + out_width);
#pragma unroll
            for (int e = 0; e < 4; e++) all[e].add(at(mean, e), at(squares, e), static_cast<float>(part_size(count, each, part)));
        }
        four(shared + 8 * (share * quads + quad)) = make_float4(all[0].sum, all[1].sum, all[2].sum, all[3].sum);
        four(shared + 8 * (share * quads + quad) + 4) = make_float4(all[0].squares, all[1].squares, all[2].squares, all[3].squares);
    }
    __syncthreads();
    for (int column = threadIdx.x; column < out_width; column += threads) {
        Distances all = {load_past_l1(from + column)};
        for (int share = 0; share < shares; share++) {
            const float* left = shared + 8 * (share * quads + column / 4) + column % 4;
            all.sum += left[0], all.squares += left[4];
        }
        done(column, all.moments(count));
    }
    __syncthreads();
}

// Mean and 1 / deviation, and the running statistics, as torch: biased variance to normalise, unbiased to run
__device__ __forceinline__ void keep_statistics(const Norm& norm, int column, const Moments& moments, int count) {
    if (column >= OUT) return;
    norm.moments[column] = moments.mean;
    norm.moments[OUT + column] = 1.0f / sqrtf(moments.squares / static_cast<float>(count > 0 ? count : 1) + norm.eps);
    const float mean = __ldg(norm.mean + column), variance = __ldg(norm.variance + column);
    const float unbiased = moments.squares / static_cast<float>(count > 1 ? count - 1 : 1);
    norm.new_mean[column] = count > 0 ? (1.0f - norm.momentum) * mean + norm.momentum * moments.mean : mean;
    norm.new_variance[column] = count > 0 ? (1.0f - norm.momentum) * variance + norm.momentum * unbiased : variance;
}

// The blocks' moments in groups, and the groups', by those blocks that arrive last
__device__ __forceinline__ void find_statistics(const Norm& norm, int num_rows, float* shared, int* flag) {
    const int num_tiles = parts_of(num_rows, rows), each = norm.tiles_per_group * rows, groups = parts_of(num_rows, each);
    const int group = blockIdx.x / norm.tiles_per_group, begin = group * norm.tiles_per_group;
    const float* from = norm.partial + size_t(begin) * 2 * out_width;
    float* to = norm.group_sums + size_t(group) * 2 * out_width;
    const auto keep = [&](int column, const Moments& moments) { keep_statistics(norm, column, moments, num_rows); };
    const auto pass_on = [&](int column, const Moments& moments) { to[column] = moments.mean, to[out_width + column] = moments.squares; };
    if (!last_to_arrive(norm.arrivals + group, min(norm.tiles_per_group, num_tiles - begin), flag)) return;
    if (groups == 1) return merge_moments(from, num_rows, rows, shared, keep);
    merge_moments(from, part_size(num_rows, each, group), rows, shared, pass_on);
    if (last_to_arrive(norm.arrivals + groups, groups, flag)) merge_moments(norm.group_sums, num_rows, each, shared, keep);
}

extern "C" __global__ void __launch_bounds__(threads, MIN_BLOCKS) product_rows(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    float* row_scales = reinterpret_cast<float*>(memory);
    int* flag = reinterpret_cast<int*>(row_scales + rows);
    float* tile = row_scales + rows + 4;  // [rows, stride]
    const int first = blockIdx.x * rows;
    Product product;
    product.zero();
    product.start(p.fragments, 0, chunks, chunks, out_chunks);
    const int num_rows = num_real(p.atoms, p.bonds, p.num_rows), count = min(rows, num_rows - first);
    wait_for_previous();
    if (count > 0) {
        bring_rows(p, tile, row_scales, first, count);
        __syncthreads();
        product.multiply(tile);
    }
    finish(p, product, row_scales, first, count);
    if (p.norm.moments == nullptr) return;
    if (count > 0) {
        leave_moments(product, p.norm.partial + size_t(blockIdx.x) * 2 * out_width, count);
        find_statistics(p.norm, num_rows, tile, flag);
    } else if (num_rows == 0 && blockIdx.x == 0) {
        for (int column = threadIdx.x; column < OUT; column += threads) keep_statistics(p.norm, column, {0.0f, 0.0f}, 0);
    }
}
