// The gradient of an atom's row: from the pooled molecules, and through dropout, relu and norm.
#pragma once
#include "gcn_layer_activation.cuh"

// Gradient of the pooled molecules in four columns of an atom of the last layer
__device__ __forceinline__ float4 unpool(const Parameters& p, int node, int quad) {
    const int graph = p.graph[node];
    const float scale = POOL == POOL_MEAN ? 1.0f / static_cast<float>(__ldg(p.ptr + graph + 1) - __ldg(p.ptr + graph)) : 1.0f;
    float4 d, largest, ties, x;
    if (POOL == POOL_MAX) {
        largest = load4(p.largest + at_row(graph) + 4 * quad), ties = load4(p.ties + at_row(graph) + 4 * quad);
        x = load4(p.input + at_row(node) + 4 * quad);
    }
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const int column = 4 * quad + e;
        at(d, e) = column < HIDDEN ? __ldg(p.grad_pooled + size_t(graph) * HIDDEN + column) * scale : 0.0f;
        if (POOL == POOL_MAX) at(d, e) = at(x, e) == at(largest, e) ? at(d, e) / at(ties, e) : 0.0f;
    }
    return d;
}

using Sums = float4[kinds][turns];

// What finish needs of a row: the norm's input, the residual's gradient and what relu and dropout kept. Loads are under way during the product.
struct Row {
    float4 raw[turns], residual[turns];
    uint32 mask[turns];

    __device__ __forceinline__ void load(const Parameters& p, int node, bool there, int lane) {
#pragma unroll
        for (int i = 0; i < turns; i++) {
            const int quad = lane + lanes * i;
            const bool inside = there && quad < quads;
            raw[i] = NORM != NORM_NONE && p.out.on && inside ? load4(p.out.raw + at_row(node) + 4 * quad) : nothing();
            residual[i] = p.residual != nullptr && inside ? load4(p.residual + at_row(node) + 4 * quad) : nothing();
            mask[i] = (!statistics || DROPOUT) && p.out.on && inside ? __ldg(p.out.masks + size_t(node) * quads + quad) : 15u;
        }
    }
};
constexpr int passes = (rows + teams - 1) / teams;                    // rows of a team
constexpr int early = passes * turns <= 8 ? passes : 8 / turns;  // whose loads begin before the product

__device__ __forceinline__ void load_rows(Row (&given)[early], const Parameters& p, int first, int count) {
#pragma unroll
    for (int i = 0; i < early; i++) {
        const int row = threadIdx.x / lanes + i * teams;
        given[i].load(p, first + row, row < count, threadIdx.x % lanes);
    }
}

// Through dropout, relu and norm of `out`; adds to the column sums
__device__ __forceinline__ void through(float4 (&d)[turns], Sums& sums, const Parameters& p, int node, bool there, int lane, const Shared& shared, Row& given) {
    const Activation& it = p.out;
    float4(&x)[turns] = given.raw;
    float deviation = 1.0f, mean = 0.0f, level = 0.0f, slope = 0.0f;
    if (NORM == NORM_LAYER && there) deviation = __ldg(it.moments + 2 * node), mean = __ldg(it.moments + 2 * node + 1);
#pragma unroll
    for (int i = 0; i < turns; i++) {
        const int quad = lane + lanes * i;
        if (quad >= quads || !there) break;
        float4 factor;
        if (NORM != NORM_NONE) factor = shared.column4(1, quad);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int column = 4 * quad + e;
            bool alive = given.mask[i] >> e & 1;
            if constexpr (statistics) {
                alive = alive && normalised(at(x[i], e), shared.columns[column], at(factor, e), shared.columns[2 * width + column]) > 0.0f;
            }
            float& g = at(d[i], e);
            g = alive ? (DROPOUT ? g * p.dropout_scale : g) : 0.0f;
            if constexpr (NORM != NORM_NONE) {
                float& normal = at(x[i], e);
                if (NORM == NORM_LAYER)
                    normal = column < HIDDEN ? (normal - mean) * deviation : 0.0f;
                else
                    normal = (normal - shared.columns[column]) * shared.columns[3 * width + column];
                at(sums[kinds - 2][i], e) += g;
                at(sums[kinds - 1][i], e) += g * normal;
                if (!statistics) g *= at(factor, e);
                if (NORM == NORM_LAYER) level += g, slope += g * normal;
            }
        }
    }
    if constexpr (NORM == NORM_LAYER) {
        level = row_sum(level) * (1.0f / HIDDEN), slope = row_sum(slope) * (1.0f / HIDDEN);
#pragma unroll
        for (int i = 0; i < turns; i++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (4 * (lane + lanes * i) + e < HIDDEN) at(d[i], e) = deviation * (at(d[i], e) - level - at(x[i], e) * slope);
    }
}
