// Gradients of weights and biases as product_weights.cu computes them, by Hopper's asynchronous products (warpgroup.cuh): dW = G^T x.
//
// A group of warps takes every GROUPS-th `at_once` rows of its block's split. Warp w has columns 16 w .. 16 w + 15 of G's tile, as operands in
// registers. x's columns are converted by all warps, one step ahead of the products, and shared.
//
// Numbers are halves (halves.cuh). Of `at_once` rows, 16 columns of G have a scale, and 8 of x: rows are what is contracted, so that they
// cannot have one each. The sums of these rows are scaled back and added up in float32, since the tensor cores cut long sums off.
//
// Macros: PRECISION, OUT_CHUNKS (of 16 columns of G, in a tile), IN_GROUPS (of eight columns of x, which are multiplied together), SLICES (of
// so many columns, in a tile), GROUPS, STAGES (whose rows a group has room for), MAX_PRODUCTS.
#include "halves.cuh"
#include "precision.cuh"
#include "warpgroup.cuh"
#include "product_weights_structs.h"  // molgcn/ops/layer_network/products_arguments.py

constexpr int at_once = 32, out_side = 16 * OUT_CHUNKS, in_side = 8 * IN_GROUPS * SLICES;
constexpr int warps = (OUT_CHUNKS + 3) / 4 * 4, threads = 32 * warps;  // of a group

#include "weight_parts.cuh"

constexpr bool exact = PRECISION == PRECISION_FLOAT32;
// Lanes that each read one of four rows that follow each other use all banks.
constexpr int left_stride = out_side + 8, right_stride = in_side + 8 - in_side % 16, stage_numbers = at_once * (left_stride + right_stride);
constexpr int block = 32, eight_columns = 4 * block;  // numbers of eight halves of eight columns, and of all rows
constexpr int part_numbers = in_side / 8 * eight_columns, halves_numbers = (1 + exact) * part_numbers;

// The shared memory of a group in numbers: `WarpgroupWeightTile.shared_bytes` in molgcn/ops/layer_network/weights_plan.py.
struct Shared {
    static constexpr int halves = STAGES * stage_numbers, scales = halves + 2 * halves_numbers, end = scales + 2 * (in_side / 8 + 3) / 4 * 4;
    static constexpr int numbers = end > sums_numbers ? end : sums_numbers;
};

// Number 8 r + 2 t + j of `at_once` contracted numbers is of row 4 (2 t + j) + (r ^ t): both for all t of an r, and for all r of a t, rows
// lie in different banks.
__device__ __forceinline__ constexpr int row_of(int r, int t, int j) { return 4 * (2 * t + j) + (r ^ t); }

// A warp's 16 columns of G as operands of mma_half: of row g column 2 g, and of row g + 8 column 2 g + 1.
struct Left {
    uint32 of[1 + exact][2][4] = {};  // the halves and what they leave, of each 16 rows
    float down = 1.0f, bias[2] = {};

    // Reads the columns from `tile` on. `begin`: where the lane's numbers begin for each r.
    __device__ __forceinline__ void convert(const float* tile, const int (&begin)[4], bool has_bias) {
        float2 v[4][2];
        float most = 0.0f;
#pragma unroll
        for (int r = 0; r < 4; r++)
#pragma unroll
            for (int j = 0; j < 2; j++) v[r][j] = *reinterpret_cast<const float2*>(tile + begin[r] + row_of(0, 0, j) * left_stride);
#pragma unroll
        for (int i = 0; i < 8; i++) most = fmaxf(most, fmaxf(fabsf(v[i / 2][i % 2].x), fabsf(v[i / 2][i % 2].y)));
        const Scale scale(largest(bits(most)));
        down = scale.down;
#pragma unroll
        for (int i = 0; has_bias && i < 8; i++) bias[0] += v[i / 2][i % 2].x, bias[1] += v[i / 2][i % 2].y;
#pragma unroll
        for (int r = 0; r < 4; r++)
#pragma unroll
            for (int column = 0; column < 2; column++) {
                const float first = column == 0 ? v[r][0].x : v[r][0].y, second = column == 0 ? v[r][1].x : v[r][1].y;
                uint32 low;
                split_halves(first * scale.up, second * scale.up, of[0][r / 2][column + 2 * (r % 2)], low);
                if (exact) of[exact][r / 2][column + 2 * (r % 2)] = low;
            }
    }
};

// Converts x's tile, eight columns a warp. Of each eight columns, halves lie in four blocks of eight rows. `begin`: where the lane's numbers
// begin for each t.
__device__ __forceinline__ void convert_right(const float* tile, const int (&begin)[4], float* halves, float* scales, int ins, int warp, int lane) {
    for (int eight = warps - 1 - warp; eight < in_side / 8 && 8 * eight < ins; eight += warps) {  // the last warps have no columns of G at times
        float v[8], most = 0.0f;
#pragma unroll
        for (int e = 0; e < 8; e++) v[e] = tile[begin[e / 2] + row_of(0, 0, e) * right_stride + 8 * eight], most = fmaxf(most, fabsf(v[e]));
        const Scale scale(largest(bits(most)));
        uint32 high[4], low[4];
#pragma unroll
        for (int i = 0; i < 4; i++) split_halves(v[2 * i] * scale.up, v[2 * i + 1] * scale.up, high[i], low[i]);
        float* to = halves + eight * eight_columns + 4 * lane;  // lane 8 r + n: row n of block r
        four(to) = make_float4(number(high[0]), number(high[1]), number(high[2]), number(high[3]));
        if (exact) four(to + part_numbers) = make_float4(number(low[0]), number(low[1]), number(low[2]), number(low[3]));
        if (lane == 0) scales[eight] = scale.down;
    }
}

// part = left^T right for a slice of the columns of `right`, over `at_once` rows. Small products come first.
__device__ __forceinline__ void multiply(float (&part)[IN_GROUPS][4], const Left& left, const float* right, int slice) {
    const HalvesMatrix matrix = moved(halves_matrix(right, 4 * block, 4 * eight_columns), 4 * eight_columns * IN_GROUPS * slice);
    begin_products();
    if (exact) {
        multiply_halves<false>(part, left.of[exact][0], matrix);
        multiply_halves(part, left.of[exact][1], moved(matrix, 8 * block));
        multiply_halves(part, left.of[0][0], moved(matrix, 4 * part_numbers));
        multiply_halves(part, left.of[0][1], moved(matrix, 4 * part_numbers + 8 * block));
    }
    multiply_halves<exact>(part, left.of[0][0], matrix);
    multiply_halves(part, left.of[0][1], moved(matrix, 8 * block));
    commit_products();
}

extern "C" __global__ void __launch_bounds__(GROUPS * threads, 1) product_weights_async(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    float* shared = reinterpret_cast<float*>(memory);
    const Tile tile(p);
    const Product& it = tile.it;
    const int group = threadIdx.x / threads, thread = threadIdx.x % threads, lane = thread % 32, warp = thread / 32, g = lane >> 2, t = lane & 3;
    float *stages = shared + group * Shared::numbers, *halves = stages + Shared::halves, *scales = stages + Shared::scales;
    const TileRows<out_side, left_stride> left_rows(it.gradient, it.out, tile.out, thread);
    const TileRows<in_side, right_stride> right_rows(it.source, it.in, tile.in, thread);
    const bool has_columns = 16 * warp < tile.outs;
    const int end = tile.end();
    int first = tile.begin() + group * at_once, next = first, to = 0;
    const auto copy = [&] {
        float* stage = stages + to * stage_numbers;
        if (next < end) {
            left_rows.copy(stage, next, end);
            if (tile.has_matrix) right_rows.copy(stage + at_once * left_stride, next, end);
        }
        commit_copies();
        next += GROUPS * at_once, to = to + 1 < STAGES ? to + 1 : 0;
    };
    int left_begin[4], right_begin[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        left_begin[i] = row_of(i, t, 0) * left_stride + 16 * warp + 2 * g;
        right_begin[i] = (lane / 8 ^ i) * right_stride + lane % 8;
    }
    float sum[SLICES][IN_GROUPS][4] = {};
    Left left;
    wait_for_previous();
#pragma unroll
    for (int i = 0; i < STAGES; i++) copy();
    wait_for_copies_but<STAGES - 1>();
    barrier(1 + group, threads);
    int current = 0, buffer = 0;  // the step's stage, and the halves of x
    const auto convert = [&] {
        const float* x = stages + current * stage_numbers + at_once * left_stride;
        if (tile.has_matrix) convert_right(x, right_begin, halves + buffer * halves_numbers, scales + buffer * (in_side / 8), tile.ins, warp, lane);
    };
    if (first < end) convert();
#pragma unroll 1
    for (; first < end; first += GROUPS * at_once) {
        if (has_columns) left.convert(stages + current * stage_numbers, left_begin, tile.has_bias);
        wait_for_copies_but<STAGES - 2>();
        show_to_products();
        barrier(1 + group, threads);  // also waits until all are done with the stage that is written next
        const float *right = halves + buffer * halves_numbers, *downs = scales + buffer * (in_side / 8);
        float part[2][IN_GROUPS][4];  // of two slices, one of which is multiplied while the other is added
        multiply(part[0], left, right, 0);
        if (SLICES > 1) multiply(part[1], left, right, 1);
        copy();
        current = current + 1 < STAGES ? current + 1 : 0, buffer ^= 1;
        if (first + GROUPS * at_once < end) convert();
#pragma unroll
        for (int slice = 0; slice < SLICES; slice++) {
            float(&it)[IN_GROUPS][4] = part[slice % 2];
            wait_for_products_but<(SLICES > 1)>();
            if (slice + 1 == SLICES) wait_for_products_but<0>();
#pragma unroll
            for (int i = 0; i < IN_GROUPS * 4; i++) arrived((&it[0][0])[i]);
#pragma unroll
            for (int m = 0; m < IN_GROUPS; m++) {
                const float down = left.down * downs[IN_GROUPS * slice + m];
#pragma unroll
                for (int e = 0; e < 4; e++) sum[slice][m][e] = fmaf(it[m][e], down, sum[slice][m][e]);
            }
            if (slice + 2 < SLICES) multiply(it, left, right, slice + 2);
        }
    }

    wait_for_copies();
    __syncthreads();  // nothing else is in the sums' place any more
#pragma unroll
    for (int i = 0; i < SLICES * IN_GROUPS * 4; i++)
        if (16 * warp < out_side) stages[(16 * warp + 2 * g + i % 4 / 2) * sums_stride + 8 * (i / 4) + 2 * t + i % 2] = (&sum[0][0][0])[i];
#pragma unroll
    for (int column = 0; column < 2; column++) {
        const float x = over_four_lanes(left.bias[column]);
        if (t == 0 && 16 * warp < out_side) stages[out_side * sums_stride + 16 * warp + 2 * g + column] = x;
    }
    __syncthreads();
    tile.write(shared, Shared::numbers);
}
