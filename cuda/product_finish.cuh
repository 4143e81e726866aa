// What product_rows.cu does with the result of a product: bias, activation, dropout, an addition, a mask, and the signs that backward reads.
//
// Macros: ACTIVATION, DROPOUT, ADD, ADD_FIRST, MASK, KEPT, SIGNS, those of the product before the last, FIRST_DROPOUT and WARPGROUPS, as
// product_rows.cu explains them.
#pragma once

struct AfterMiddle {
    static constexpr int columns = MIDDLE, parts = 1, part = MIDDLE;
    static constexpr int activation = MIDDLE_RELU;
    static constexpr bool dropout = MIDDLE_DROPOUT, add = MIDDLE_ADD, add_first = false, mask = MIDDLE_MASK, kept = false, out = MIDDLE_OUT;
    static constexpr bool signs = MIDDLE_SIGNS;
};
struct AfterLast {
    static constexpr int columns = OUT, parts = PARTS, part = PART;
    static constexpr int activation = ACTIVATION;
    static constexpr bool dropout = DROPOUT, add = ADD, add_first = ADD_FIRST, mask = MASK, kept = KEPT, out = true, signs = SIGNS;
};

// A result may have several PARTS, rows of PART columns each: the results of several weights. Their columns lie side by side in the product.
static_assert(PARTS == 1 || !(MIDDLE || ACTIVATION || DROPOUT || ADD || MASK || KEPT || SIGNS || MOMENTS || SUMS), "parts are written as they are");
__device__ __forceinline__ const float* bias_of(const Parameters& p, const Result& it, int part) {
    return part == 0 ? it.bias : part == 1 ? p.second_bias : p.third_bias;
}
__device__ __forceinline__ float* out_of(const Parameters& p, const Result& it, int part) {
    return part == 0 ? it.out : part == 1 ? p.second_out : p.third_out;
}

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

// Returns four numbers of a row of gradients, from `column` on, taken back through dropout and relu. `signs`: those of rows from
// `first_with_signs` on.
__device__ __forceinline__ float4 through_mask(const Parameters& p, int row, int column, float4 x, const float* signs, int first_with_signs) {
    const float2* words = words_of(signs, Source::chunks, row - first_with_signs, column / 16);
    const uint32 positive = four_signs(WARPGROUPS ? *words : __ldg(words), row, column);
    const uint32 kept = FIRST_DROPOUT ? drawn(p, row, column / 4, p.first_site) : 0;
#pragma unroll
    for (int e = 0; e < 4; e++) {
        if (FIRST_DROPOUT) at(x, e) = dropped(kept >> e & 1, at(x, e), p.dropout_scale);
        if (!(positive >> e & 1)) at(x, e) = 0.0f;
    }
    return x;
}

// Where a lane's numbers of 16 columns of a result lie: in two rows of every eight.
template <class After>
struct Place {
    static constexpr int in_memory = (After::part + 3) / 4 * 4, all_chunks = (After::columns + 15) / 16;
    int chunk, column, first, count, row[2];
    bool inside;

    // `c`: which of the 16 columns that the warp has; `first`, `count`: the tile's rows.
    template <class Multiplication>
    __device__ __forceinline__ Place(const Multiplication& product, int c, int first, int count)
        : chunk(product.column + c), column(16 * chunk + 2 * product.g), first(first), count(count), inside(column < After::parts * in_memory) {
#pragma unroll
        for (int i = 0; i < 2; i++) row[i] = Product::atom(2 * product.t + i);
    }
    __device__ __forceinline__ size_t offset(int m, int i) const { return size_t(first + row[i]) * in_memory + column % (After::parts > 1 ? in_memory : 16 * all_chunks) + 8 * m * in_memory; }
    __device__ __forceinline__ bool is_there(int m, int i) const { return 8 * m + row[i] < count && inside; }
};

// What is added to a lane's numbers of 16 columns, and the signs by which they are masked.
template <class After>
struct Further {
    float2 added[Product::groups][2];
    float4 signs[Product::groups];

    // Asks for those of eight rows. `tile`: the tile's rows of it.add, if adds_what_follows.
    __device__ __forceinline__ void ask(const Result& it, const Place<After>& place, int m, const float* tile) {
        if (WARPGROUPS) added[m][0] = added[m][1] = make_float2(0.0f, 0.0f), signs[m] = nothing();  // or old ones would hold registers
        if (After::mask && 8 * m < place.count) signs[m] = __ldg(&signs_of(it.signs, place.all_chunks, place.first + 8 * m, place.chunk));
#pragma unroll
        for (int i = 0; i < 2; i++)
            if (After::add && adds_what_follows)
                added[m][i] = place.inside ? *reinterpret_cast<const float2*>(tile + (8 * m + place.row[i]) * place.in_memory + place.column) : make_float2(0.0f, 0.0f);
            else if (After::add && place.is_there(m, i))  // the block itself may have written it, so that __ldg must not read it
                added[m][i] = *reinterpret_cast<const float2*>(it.add + place.offset(m, i));
    }
};

// In small batches there are registers to ask for what follows the products before them.
constexpr bool asks_early = RESIDENT && ROW_GROUPS <= 2;
template <class After, int COLUMNS, class Multiplication>
__device__ __forceinline__ void ask_early(const Result& it, const Multiplication& product, int first, int count, Further<After> (&further)[COLUMNS]) {
#pragma unroll
    for (int c = 0; c < COLUMNS; c++)
#pragma unroll
        for (int m = 0; m < Product::groups; m++) {
            const Place<After> place(product, c, first, count);
            if (asks_early && place.chunk < place.all_chunks) further[c].ask(it, place, m, nullptr);
        }
}

// Applies what follows a product to the `count` rows from `first` on, and calls put(row of the tile, column, two numbers). product.sum then
// holds what is written. `vectors`: the scales of the weight's columns, and the bias. `added`: the tile's rows of it.add, if adds_what_follows.
// `early`: what has been asked for, if `asks_early`.
template <class After, int COLUMNS, class Multiplication, class Put>
__device__ __forceinline__ void finish(
    const Parameters& p, const Result& it, Multiplication& product, const float* vectors, const float* row_scales, const float* added, int first,
    int count, const Further<After> (&early)[COLUMNS], Put put) {
    constexpr int all_chunks = Place<After>::all_chunks;
    constexpr int at_once = WARPGROUPS ? 4 : Product::groups;  // groups of rows; the warps of warpgroups have few registers
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        if (product.column + c >= all_chunks) continue;
        const Place<After> place(product, c, first, count);
        const int column = place.column;
        const float2 scale = *reinterpret_cast<const float2*>(vectors + column), bias = *reinterpret_cast<const float2*>(vectors + 16 * all_chunks + column);
        Further<After> further;
        if (asks_early) further = early[c];
#pragma unroll
        for (int m = 0; m < Product::groups; m++) {
            if (!asks_early && m % at_once == 0)
#pragma unroll
                for (int together = m; together < m + at_once && together < Product::groups; together++) further.ask(it, place, together, added);
            const Kept kept = After::dropout ? Kept(p, product.g, product.t, first, m, column, it.dropout_site) : Kept();
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const bool there = place.is_there(m, i);
                const float down = row_scales[8 * m + place.row[i]];
                float v[2] = {fmaf(product.sum[c][m][i], down * scale.x, bias.x), fmaf(product.sum[c][m][2 + i], down * scale.y, bias.y)};
                const auto add = [&] { v[0] += further.added[m][i].x, v[1] += further.added[m][i].y; };
                if (After::add && After::add_first && there) add();
                if (After::kept && there) two(it.kept + place.offset(m, i)) = make_float2(v[0], v[1]);
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    v[j] = activated(After::activation, v[j]);
                    if (After::dropout) v[j] = dropped(kept(i, j), v[j], p.dropout_scale);
                }
                if (After::signs)
#pragma unroll
                    for (int j = 0; j < 2; j++) at(further.signs[m], 2 * i + j) = number(ballot(v[j] > 0.0f));
                if (After::add && !After::add_first && there) add();
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    if (After::mask && there) v[j] = through_relu(bits(at(further.signs[m], 2 * i + j)) >> product.lane & 1, v[j], it.mask_scale);
                }
                if (After::out && there) two(out_of(p, it, After::parts > 1 ? column / place.in_memory : 0) + place.offset(m, i)) = make_float2(v[0], v[1]);
                if (place.inside) put(8 * m + place.row[i], column, make_float2(v[0], v[1]));
                product.sum[c][m][i] = v[0], product.sum[c][m][2 + i] = v[1];
            }
            if (After::signs && product.lane == 0 && 8 * m < count) signs_of(it.signs, all_chunks, first + 8 * m, product.column + c) = further.signs[m];
        }
    }
}
