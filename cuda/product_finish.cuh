// What product_rows.cu does with the result of a product: bias, relu, dropout, an addition, a mask, and the signs that backward reads.
//
// Macros: RELU, DROPOUT, ADD, MASK, KEPT, SIGNS, those of the product before the last, FIRST_DROPOUT and WARPGROUPS, as product_rows.cu
// explains them.
#pragma once

struct AfterMiddle {
    static constexpr int columns = MIDDLE;
    static constexpr bool relu = MIDDLE_RELU, dropout = MIDDLE_DROPOUT, add = MIDDLE_ADD, mask = MIDDLE_MASK, kept = false, out = MIDDLE_OUT;
    static constexpr bool signs = MIDDLE_SIGNS;
};
struct AfterLast {
    static constexpr int columns = OUT;
    static constexpr bool relu = RELU, dropout = DROPOUT, add = ADD, mask = MASK, kept = KEPT, out = true, signs = SIGNS;
};

constexpr bool adds_what_follows = follows && !SUMS;

// Which columns of a quad dropout keeps, in two rows: a lane's and its neighbour's. Each of the two lanes draws for one row.
struct Kept {
    uint32 mine, other;
    bool odd;

    __device__ __forceinline__ Kept() {}
    __device__ __forceinline__ Kept(const Parameters& p, int g, int t, int first, int m, int column, int site) : odd(g & 1) {
        const int row = 8 * m + Product::atom(2 * t + odd);
        mine = drawn(p, first + row, column / 4, site);
        other = bits(shuffle_xor(number(mine), 4));
    }
    // Returns whether dropout keeps column j of a lane's two in row i of the two.
    __device__ __forceinline__ bool operator()(int i, int j) const { return ((i == odd) ? mine : other) >> (2 * odd + j) & 1; }
};

// Returns the four words with the signs of eight rows and 16 columns: bit `lane` of word 2 i + j belongs to row i and column j of the lane's.
__device__ __forceinline__ float4& signs_of(float* signs, int chunks, int row, int chunk) {
    return four(signs + 4 * (size_t(row / 8) * chunks + chunk));
}

// Returns four numbers of a row of gradients, from `column` on, taken back through dropout and relu. `signs`: those of rows from
// `first_with_signs` on.
__device__ __forceinline__ float4 through_mask(const Parameters& p, int row, int column, float4 x, float* signs, int first_with_signs) {
    const int place = Product::atom(row % 8), lane = 4 * (column % 16 / 2) + place / 2;  // the lane with the first two of the columns
    const float2* of_columns = reinterpret_cast<const float2*>(&signs_of(signs, Source::chunks, row - first_with_signs, column / 16));
    const float2 words = WARPGROUPS ? of_columns[place % 2] : __ldg(of_columns + place % 2);
    const uint32 kept = FIRST_DROPOUT ? drawn(p, row, column / 4, p.first_site) : 0;
#pragma unroll
    for (int e = 0; e < 4; e++) {
        if (FIRST_DROPOUT) at(x, e) = kept >> e & 1 ? at(x, e) * p.dropout_scale : 0.0f;
        if (!(bits(e % 2 == 0 ? words.x : words.y) >> (lane + 4 * (e / 2)) & 1)) at(x, e) = 0.0f;
    }
    return x;
}

// Applies what follows a product to the `count` rows from `first` on, and calls put(row of the tile, column, two numbers). product.sum then
// holds what is written. `vectors`: the scales of the weight's columns, and the bias. `added`: the tile's rows of it.add, if adds_what_follows.
template <class After, int COLUMNS, class Multiplication, class Put>
__device__ __forceinline__ void finish(
    const Parameters& p, const Result& it, Multiplication& product, const float* vectors, const float* row_scales, const float* added, int first,
    int count, Put put) {
    constexpr int in_memory = (After::columns + 3) / 4 * 4, all_chunks = (After::columns + 15) / 16;
    constexpr int at_once = WARPGROUPS ? 4 : Product::groups;  // groups of rows; the warps of warpgroups have few registers
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        if (product.column + c >= all_chunks) continue;
        const int column = 16 * (product.column + c) + 2 * product.g;
        const float2 scale = *reinterpret_cast<const float2*>(vectors + column), bias = *reinterpret_cast<const float2*>(vectors + 16 * all_chunks + column);
        const bool inside = column < in_memory;
        size_t offset[2];  // of a lane's two rows among every eight
        int row[2];
#pragma unroll
        for (int i = 0; i < 2; i++) row[i] = Product::atom(2 * product.t + i), offset[i] = size_t(first + row[i]) * in_memory + column;
        const auto is_there = [&](int m, int i) { return 8 * m + row[i] < count && inside; };
        float2 more[Product::groups][2];
        float4 signs[Product::groups];
        const auto ask = [&](int m) {
            if (WARPGROUPS) more[m][0] = more[m][1] = make_float2(0.0f, 0.0f), signs[m] = nothing();  // or old ones would hold registers
            if (After::mask && 8 * m < count) signs[m] = __ldg(&signs_of(it.signs, all_chunks, first + 8 * m, product.column + c));
#pragma unroll
            for (int i = 0; i < 2; i++)
                if (After::add && adds_what_follows)
                    more[m][i] = inside ? *reinterpret_cast<const float2*>(added + (8 * m + row[i]) * in_memory + column) : make_float2(0.0f, 0.0f);
                else if (After::add && is_there(m, i))  // the block itself may have written it, so that __ldg must not read it
                    more[m][i] = *reinterpret_cast<const float2*>(it.add + offset[i] + 8 * m * in_memory);
        };
#pragma unroll
        for (int m = 0; m < Product::groups; m++) {
            if (m % at_once == 0)
#pragma unroll
                for (int together = m; together < m + at_once && together < Product::groups; together++) ask(together);
            const Kept kept = After::dropout ? Kept(p, product.g, product.t, first, m, column, it.dropout_site) : Kept();
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const bool there = is_there(m, i);
                const float down = row_scales[8 * m + row[i]];
                float v[2] = {fmaf(product.sum[c][m][i], down * scale.x, bias.x), fmaf(product.sum[c][m][2 + i], down * scale.y, bias.y)};
                if (After::kept && there) two(it.kept + offset[i] + 8 * m * in_memory) = make_float2(v[0], v[1]);
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    if (After::relu) v[j] = relu(v[j]);
                    if (After::dropout) v[j] = kept(i, j) || v[j] != v[j] ? v[j] * p.dropout_scale : 0.0f;
                }
                if (After::signs)
#pragma unroll
                    for (int j = 0; j < 2; j++) at(signs[m], 2 * i + j) = number(ballot(v[j] > 0.0f));
                if (After::add && there) v[0] += more[m][i].x, v[1] += more[m][i].y;
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    if (After::mask && there) v[j] = bits(at(signs[m], 2 * i + j)) >> product.lane & 1 ? v[j] * it.mask_scale : 0.0f;
                }
                if (After::out && there) two(it.out + offset[i] + 8 * m * in_memory) = make_float2(v[0], v[1]);
                if (inside) put(8 * m + row[i], column, make_float2(v[0], v[1]));
                product.sum[c][m][i] = v[0], product.sum[c][m][2 + i] = v[1];
            }
            if (After::signs && product.lane == 0 && 8 * m < count) signs_of(it.signs, all_chunks, first + 8 * m, product.column + c) = signs[m];
        }
    }
}
