// The rows that product_rows.cu multiplies: brought into shared memory, taken through the end of a layer if wanted, and converted to
// halves.
//
// With several ARRAYS, a row is one of `x`, one of `second` and perhaps one of `third`, 16 columns of each in turn, and so are the operands of
// as many weights: the sum of products is then one product. They take turns because tensor cores cut their sums off. `larger_by` makes up for
// that where sums grow evenly, and so they do even if one of the rows is much larger.
//
// Macros: ARRAYS (at most 3); BEFORE (BEFORE_NOTHING, BEFORE_END: the end of a layer is applied; BEFORE_GRAD: its gradient), BEFORE_NORM,
// BEFORE_ACTIVATION, BEFORE_DROPOUT, BEFORE_ADD (what the end consists of); GATHER (the rows are sums along the bonds: product_gather.cuh);
// WARPGROUPS, SUMS and ADD, as product_rows.cu explains them.
#pragma once
#include "halves.cuh"

#define BEFORE_NOTHING 0
#define BEFORE_END 1
#define BEFORE_GRAD 2

// Rows of COLUMNS numbers, from each of some arrays, as they lie in shared memory.
template <int COLUMNS, int OF_ARRAYS = 1>
struct TileOf {
    static constexpr int chunks = OF_ARRAYS * ((COLUMNS + 15) / 16), width = 16 * chunks;
    static constexpr int in_memory = (COLUMNS + 3) / 4 * 4;  // numbers from row to row in global memory
    // Two rows side by side use all banks, or a tile comes in one piece.
    static constexpr int stride = WARPGROUPS ? in_memory : width % 32 == 0 ? width + 16 : width;
    static constexpr int numbers = rows * stride;
    // Returns where a column lies in its array. From `in_memory` on there is nothing, and numbers are zeros.
    static __device__ constexpr int in_array(int column) { return OF_ARRAYS == 1 ? column : column / (16 * OF_ARRAYS) * 16 + column % 16; }
    static __device__ constexpr int loads_of(int lanes) { return (width / 4 + lanes - 1) / lanes * lanes; }
    static __device__ constexpr int fewest(int a, int b) { return loads_of(a) <= loads_of(b) ? a : b; }
    static constexpr int lanes = WARPGROUPS ? 8 : OF_ARRAYS > 2 ? 16 : fewest(32, fewest(16, fewest(8, 4)));  // that have a row
    static constexpr int lane_quads = (width / 4 + lanes - 1) / lanes, teams = threads / lanes;
};
using Source = TileOf<IN, ARRAYS>;
static_assert(ARRAYS == 1 || (BEFORE == BEFORE_NOTHING && !GATHER && !FIRST_MASK && !WARPGROUPS), "several rows are multiplied as they are");
constexpr bool two_sources = !GATHER && (BEFORE == BEFORE_GRAD || (BEFORE == BEFORE_END && BEFORE_ADD));  // the second: the norm's input, or what is added
// With WARPGROUPS, whether what is read after the products has room in shared memory: the next norm's input, or else what is added.
constexpr bool follows = WARPGROUPS && !two_sources && (SUMS || ADD);

// Starts to copy rows into a tile as they are. The thread that copies a number converts it later; `thread` is its number in its group.
__device__ __forceinline__ void copy_rows(const Parameters& p, int thread, float* tile, int first, int count) {
    for (int row = thread / Source::lanes; row < count; row += Source::teams) {
        const size_t from = size_t(first + row) * Source::in_memory;
#pragma unroll
        for (int i = 0; i < Source::lane_quads; i++) {
            const int column = 4 * (thread % Source::lanes + i * Source::lanes);
            if (Source::in_array(column) >= Source::in_memory) continue;
            const int array = column / 16 % ARRAYS;
            const float* x = array == 0 ? p.x : array == 1 ? p.second : p.third;
            copy16(tile + row * Source::stride + column, x + from + Source::in_array(column), true);
            if (two_sources) copy16(tile + Source::numbers + row * Source::stride + column, p.second + from + column, true);
        }
    }
}

// Takes four columns of a row through the end of a layer, or its gradient back through it.
__device__ __forceinline__ float4 through_end(const Parameters& p, const Columns& columns, int row, int column, const float4& x, const float4& second) {
    Quad of[6];
#pragma unroll
    for (int i = 0; BEFORE_NORM && i < (BEFORE == BEFORE_GRAD ? 6 : 4); i++) of[i] = load(columns.at + i * Source::in_memory + column);
    const uint32 kept = BEFORE_DROPOUT ? drawn(p, row, column / 4, p.before.dropout_site) : 0;
    float4 out;
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const Column it = {of[0].e[e], of[1].e[e], of[2].e[e], of[3].e[e]};
        const float source = BEFORE == BEFORE_GRAD ? at(second, e) : at(x, e);
        float y = BEFORE_NORM ? it(source) : source, g = at(x, e);
        if (BEFORE == BEFORE_GRAD) {
            g = through_activation(BEFORE_ACTIVATION, y, g);
            if (BEFORE_DROPOUT) g = dropped(kept >> e & 1, g, p.dropout_scale);
            at(out, e) = BEFORE_NORM ? it.through_statistics(source, g, of[4].e[e], of[5].e[e]) : g;
        } else {
            y = activated(BEFORE_ACTIVATION, y);
            if (BEFORE_DROPOUT) y = dropped(kept >> e & 1, y, p.dropout_scale);
            at(out, e) = BEFORE_ADD ? y + at(second, e) : y;
        }
    }
    return out;
}

// Converts a tile's rows to halves, each row with its scale; gives zeros from `count` on. take(row, column, x) may change four numbers
// first, and put(row, column, x) gets them as `operand` returns them.
template <class Tile, class Take, class Put>
__device__ __forceinline__ void convert_rows(int thread, const float* tile, float* row_scales, int count, Take take, Put put) {
    constexpr int lanes = Tile::lanes, lane_quads = Tile::lane_quads;
    const int lane = thread % lanes;
    for (int row = thread / lanes; row < rows; row += Tile::teams) {  // all lanes of a warp continue together: a warp has whole teams
        const float* begin = tile + row * Tile::stride;
        float4 x[lane_quads];
        float most = 0.0f;
#pragma unroll
        for (int i = 0; WARPGROUPS && i < lane_quads; i++) x[i] = nothing();
        if (!WARPGROUPS || row < count)  // one branch, so that long rows are read and changed without waiting for each four numbers
#pragma unroll
            for (int i = 0; i < lane_quads; i++) {
                const int column = 4 * (lane + i * lanes);
                const bool there = (WARPGROUPS || row < count) && Tile::in_array(column) < Tile::in_memory;
                x[i] = there ? *reinterpret_cast<const float4*>(begin + column) : nothing();
                if (there) take(row, column, x[i]);
#pragma unroll
                for (int e = 0; e < 4; e++) most = fmaxf(most, fabsf(at(x[i], e)));
            }
#pragma unroll
        for (int mask = lanes / 2; mask > 0; mask >>= 1) most = fmaxf(most, shuffle_xor(most, mask));
        const Scale scale(bits(most));
#pragma unroll
        for (int i = 0; i < lane_quads; i++) {
            const int column = 4 * (lane + i * lanes);
            if (column < Tile::width) put(row, column, operand(x[i], scale.up));
        }
        if (lane == 0) row_scales[row] = scale.down;
    }
}
