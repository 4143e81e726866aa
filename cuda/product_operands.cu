// Prepares the weights of a pass as operands of the product of halves_product.cuh, in one launch. A block takes 16 columns of one weight,
// of several whose rows take turns, 16 of each, or of several whose columns lie side by side, `part` of each.
//
// Macros: MAX_WEIGHTS.
#include "halves.cuh"
#include "product_operands_structs.h"  // molgcn/ops/layer_network/products_arguments.py

constexpr int threads = 256, warps = threads / 32;
constexpr int together = 2;  // blocks of 16 x 16 that a warp keeps in registers; it loads others twice

// In each 16 x 16 block lane 4 g + t has columns 2 g and 2 g + 1 of rows 4 t .. 4 t + 3.
extern "C" __global__ void __launch_bounds__(threads) product_operands(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    float* most = reinterpret_cast<float*>(memory);  // [warps, 16]: the largest of a column's numbers
    const Weight& it = entry_of_block(p.weights, p.num_weights);
    const int chunk = blockIdx.x - it.first_block, turns = it.part > 0 ? 1 : it.weights, count = turns * ((it.rows + 15) / 16);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = 2 * (lane / 4);
    const auto load = [&](int k, int j, int e) {
        const int row = 16 * (k / turns) + 4 * (lane % 4) + e, all = 16 * chunk + first + j, column = it.part > 0 ? all % it.part : all;
        const int which = it.part > 0 ? all / it.part : k % turns;
        const float* values = which == 0 ? it.values : which == 1 ? it.second : it.third;
        return row < it.rows && column < it.columns && which < it.weights ? __ldg(values + size_t(row) * it.row_step + size_t(column) * it.column_step) : 0.0f;
    };
    // Nothing that writes weights runs while a pass does, whose first launch waits for all that came before (workspace.py).
    float x[together][4][2], largest[2] = {};
    const auto bring = [&](int k, float (&to)[4][2]) {
#pragma unroll
        for (int e = 0; e < 4; e++)
#pragma unroll
            for (int j = 0; j < 2; j++) largest[j] = fmaxf(largest[j], fabsf(to[e][j] = load(k, j, e)));
    };
#pragma unroll
    for (int i = 0; i < together; i++) bring(warp + i * warps, x[i]);
    for (int k = warp + together * warps; k < count; k += warps) {
        float more[4][2];
        bring(k, more);
    }
#pragma unroll
    for (int j = 0; j < 2; j++) {
        largest[j] = fmaxf(largest[j], shuffle_xor(largest[j], 1));
        largest[j] = fmaxf(largest[j], shuffle_xor(largest[j], 2));
        if (lane % 4 == 0) most[16 * warp + first + j] = largest[j];
    }
    __syncthreads();
    Scale scale[2];
#pragma unroll
    for (int j = 0; j < 2; j++) {
        float all = 0.0f;
        for (int i = 0; i < warps; i++) all = fmaxf(all, most[16 * i + first + j]);
        scale[j] = Scale(bits(all));
    }
    wait_for_previous();  // until the memory for operands is free
    if (warp == 0 && lane % 4 == 0)
        for (int j = 0; j < 2; j++) it.scales[16 * chunk + first + j] = scale[j].down * larger_by(0.375f * count);
    float4* to = reinterpret_cast<float4*>(it.fragments) + 64 * size_t(chunk) * count + lane;
    const auto put = [&](int k, const float (&from)[4][2]) {
        uint32 high[4], low[4];
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int j = 0; j < 2; j++)
                split_halves(from[2 * half][j] * scale[j].up, from[2 * half + 1][j] * scale[j].up, high[2 * half + j], low[2 * half + j]);
        to[64 * k] = make_float4(number(high[0]), number(high[1]), number(high[2]), number(high[3]));
        to[64 * k + 32] = make_float4(number(low[0]), number(low[1]), number(low[2]), number(low[3]));
    };
#pragma unroll
    for (int i = 0; i < together; i++)
        if (warp + i * warps < count) put(warp + i * warps, x[i]);
    for (int k = warp + together * warps; k < count; k += warps) {
        bring(k, x[0]);
        put(k, x[0]);
    }
}
