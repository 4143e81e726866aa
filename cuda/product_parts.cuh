// The part that a block of product_rows.cu leaves for the norm that comes next (layer_end.cuh): the moments of the result's columns, or the
// sums that the norm's gradients need.
//
// Macros: MOMENTS, SUMS (which of the two), NEXT_ACTIVATION, NEXT_DROPOUT (what follows the norm).
#pragma once
#include "moments.cuh"

// Calls body(c, j, m, i) for all numbers that a lane holds of the product in the first `count` rows.
template <class Body>
__device__ __forceinline__ void each_number(const Last& product, int count, Body body) {
#pragma unroll
    for (int c = 0; c < COLUMN_TILES; c++)
#pragma unroll
        for (int m = 0; m < Product::groups; m++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                if (8 * m + Product::atom(2 * product.t + i) < count)
#pragma unroll
                    for (int j = 0; j < 2; j++) body(c, j, m, i);
}
// Writes two adjacent columns of a part for each 16 columns of the warp. number(c, j, which) returns the first or the second number.
template <class Number>
__device__ __forceinline__ void write_part(const Last& product, float* part, Number number) {
#pragma unroll
    for (int c = 0; c < COLUMN_TILES; c++) {
        if (product.column + c >= out_chunks) continue;
        float2 both[2];
#pragma unroll
        for (int which = 0; which < 2; which++) both[which] = make_float2(number(c, 0, which), number(c, 1, which));
        if (product.t > 0) continue;
        const int column = 16 * (product.column + c) + 2 * product.g;
        two(part + column) = both[0], two(part + out_width + column) = both[1];
    }
}

#if MOMENTS
struct Part {  // a lane's sums over a block's rows
    Distances all[COLUMN_TILES][2];
    int count = 0;

    __device__ __forceinline__ Part(const Parameters&, const Last&) {}
    __device__ __forceinline__ void ask(const Parameters&, const Last&, int, int) {}
    __device__ __forceinline__ void add(const Parameters&, const Last& product, const float*, int, int more) {
        if (count == 0) {  // the origin: the column's first number, which is near the mean and the same in all lanes that share the column
#pragma unroll
            for (int i = 0; i < COLUMN_TILES * 2; i++)
                all[i / 2][i % 2].origin = over_four_lanes(product.t == 0 ? product.sum[i / 2][0][i % 2 * 2] : 0.0f);
        }
        Distances tile[COLUMN_TILES][2];
#pragma unroll
        for (int i = 0; i < COLUMN_TILES * 2; i++) tile[i / 2][i % 2] = {all[i / 2][i % 2].origin};
        each_number(product, more, [&](int c, int j, int m, int i) { tile[c][j].add(product.sum[c][m][2 * j + i]); });
#pragma unroll
        for (int i = 0; i < COLUMN_TILES * 2; i++) {
            Distances& it = all[i / 2][i % 2];
            it.sum += tile[i / 2][i % 2].sum, it.squares += tile[i / 2][i % 2].squares;
        }
        count += more;
    }
    __device__ __forceinline__ void leave(const Last& product, float* part) {
        float mean[COLUMN_TILES][2], squares[COLUMN_TILES][2];
#pragma unroll
        for (int i = 0; i < COLUMN_TILES * 2; i++) {
            Distances sums = count > 0 ? all[i / 2][i % 2] : Distances{0.0f};
            sums.sum = over_four_lanes(sums.sum), sums.squares = over_four_lanes(sums.squares);
            const auto moments = sums.moments(count);
            mean[i / 2][i % 2] = moments.mean, squares[i / 2][i % 2] = moments.squares;
        }
        write_part(product, part, [&](int c, int j, int which) { return which == 0 ? mean[c][j] : squares[c][j]; });
        if (product.column == 0 && product.lane == 0) part[2 * out_width] = static_cast<float>(count);
    }
};
#endif

#if SUMS
struct Part {
    NormSums all[COLUMN_TILES][2];
    Column columns[COLUMN_TILES][2];
    float2 early[COLUMN_TILES][Product::groups][2];  // a tile's rows of the norm's input, if `asks_early`

    __device__ __forceinline__ Part(const Parameters& p, const Last& product) {
        if (!WARPGROUPS) load(p, product);  // the norm's moments are known since the forward pass
    }
    __device__ __forceinline__ void load(const Parameters& p, const Last& product) {
#pragma unroll
        for (int i = 0; i < COLUMN_TILES * 2; i++) {
            const int column = min(16 * (product.column + i / 2) + 2 * product.g + i % 2, OUT - 1);
            const float deviation = __ldg(p.next.moments + OUT + column);
            columns[i / 2][i % 2] = {__ldg(p.next.moments + column), deviation, deviation * __ldg(p.next.weight + column), __ldg(p.next.bias + column)};
        }
    }
    __device__ __forceinline__ void ask(const Parameters& p, const Last& product, int first, int count) {
#pragma unroll
        for (int c = 0; c < COLUMN_TILES; c++)
#pragma unroll
            for (int m = 0; m < Product::groups; m++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const Place<AfterLast> place(product, c, first, count);
                    if (asks_early && place.is_there(m, i)) early[c][m][i] = next_input(p, place, m, i);
                }
    }
    __device__ __forceinline__ float2 next_input(const Parameters& p, const Place<AfterLast>& place, int m, int i) const {
        return __ldg(reinterpret_cast<const float2*>(p.next_source + place.offset(m, i)));
    }
    // `following`: the tile's rows of the norm's input, if `follows`.
    __device__ __forceinline__ void add(const Parameters& p, const Last& product, const float* following, int first, int count) {
        if (WARPGROUPS) load(p, product);  // again, so that they take no registers meanwhile
#pragma unroll
        for (int c = 0; c < COLUMN_TILES; c++) {
            const Place<AfterLast> place(product, c, first, count);
            NormSums tile[2];
#pragma unroll
            for (int m = 0; m < Product::groups; m++) {
                const Kept kept = NEXT_DROPOUT ? Kept(p, product.g, product.t, first, m, place.column, p.next.dropout_site) : Kept();
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    if (!place.is_there(m, i)) continue;
                    float2 x = early[c][m][i];
                    if (follows)
                        x = *reinterpret_cast<const float2*>(following + (8 * m + place.row[i]) * out_stride + place.column);
                    else if (!asks_early)
                        x = next_input(p, place, m, i);
#pragma unroll
                    for (int j = 0; j < 2; j++) {
                        float g = product.sum[c][m][2 * j + i];
                        g = through_activation(NEXT_ACTIVATION, columns[c][j](j == 0 ? x.x : x.y), g);
                        if (NEXT_DROPOUT) g = dropped(kept(i, j), g, p.dropout_scale);
                        tile[j].add(g, columns[c][j].normal(j == 0 ? x.x : x.y));
                    }
                }
            }
#pragma unroll
            for (int j = 0; j < 2; j++) all[c][j].merge(tile[j]);
        }
    }
    __device__ __forceinline__ void leave(const Last& product, float* part) {
        write_part(product, part, [&](int c, int j, int which) { return over_four_lanes(which == 0 ? all[c][j].bias : all[c][j].weight); });
    }
};
#endif

#if MOMENTS || SUMS
// Merges the parts of a block's groups.
__device__ __forceinline__ void merge_groups(const float* parts, float* to) {
    for (int column = threadIdx.x; column < out_width; column += blockDim.x) {
        float sums[3] = {};
        for (int group = 0; group < GROUPS; group++) {
            const float* part = parts + group * part_numbers(OUT);
            if (MOMENTS)
                ColumnMoments{part[2 * out_width], part[column], part[out_width + column]}.add_to(sums, parts[column]);
            else
                NormSums{part[column], part[out_width + column]}.add_to(sums, 0.0f);
        }
        const ColumnMoments moments = ColumnMoments::of(sums, parts[column]);  // the first group has rows
        to[column] = MOMENTS ? moments.mean : sums[0], to[out_width + column] = MOMENTS ? moments.squares : sums[1];
        if (column == 0) to[2 * out_width] = sums[2];
    }
}
#endif
