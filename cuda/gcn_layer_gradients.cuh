// The gradient of an atom's row: from the pooled molecules, and through dropout, relu and norm.
#pragma once
#include "gcn_layer_activation.cuh"

// Returns the gradient that pooling gives to four columns of an atom of the last layer.
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

using Sums = float4[kinds][lane_quads];

// What `finish` needs of a row: the norm's input, the residual's gradient, and what relu and dropout kept. The loads are under way during
// the product.
struct Row {
    float4 raw[lane_quads], residual[lane_quads];
    uint32 mask[lane_quads];

    // The residual's gradient has been written by the block itself.
    __device__ __forceinline__ void load(const Parameters& p, int node, bool there, int lane) {
#pragma unroll
        for (int i = 0; i < lane_quads; i++) {
            const int quad = lane + lanes * i;
            const bool inside = there && quad < quads;
            raw[i] = NORM != NORM_NONE && p.out.on && inside ? load4(p.out.raw + at_row(node) + 4 * quad) : nothing();
            residual[i] = p.residual != nullptr && inside ? *reinterpret_cast<const float4*>(p.residual + at_row(node) + 4 * quad) : nothing();
            mask[i] = p.out.on && inside ? __ldg(p.out.masks + size_t(node) * quads + quad) : 15u;
        }
    }
};
constexpr int passes = (rows + teams - 1) / teams;                    // rows that a team takes one after the other
constexpr int early = passes * lane_quads <= 8 ? passes : 8 / lane_quads;  // rows whose loads begin before the product

__device__ __forceinline__ void load_rows(Row (&given)[early], const Parameters& p, int first, int count) {
#pragma unroll
    for (int i = 0; i < early; i++) {
        const int row = threadIdx.x / lanes + i * teams;
        given[i].load(p, first + row, row < count, threadIdx.x % lanes);
    }
}

// Takes the gradient d through dropout, relu and norm of `out`; adds to the column sums.
__device__ __forceinline__ void through(float4 (&d)[lane_quads], Sums& sums, const Parameters& p, int node, bool there, int lane, const Shared& shared, Row& given) {
    const Activation& it = p.out;
    float4(&x)[lane_quads] = given.raw;
    float deviation = 1.0f, mean = 0.0f, mean_g = 0.0f, mean_gx = 0.0f;  // the last over a row, of d and of d times the normalised x
    if (NORM == NORM_LAYER && there) deviation = __ldg(it.moments + 2 * node), mean = __ldg(it.moments + 2 * node + 1);
#pragma unroll
    for (int i = 0; i < lane_quads; i++) {
        const int quad = lane + lanes * i;
        if (quad >= quads || !there) break;
        float4 factor;
        if (NORM != NORM_NONE) factor = shared.column4(1, quad);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int column = 4 * quad + e;
            float& g = at(d[i], e);
            g = through_relu(given.mask[i] >> e & 1, g, kept_scale(p));
            if constexpr (NORM != NORM_NONE) {
                float& normal = at(x[i], e);
                if (NORM == NORM_LAYER)
                    normal = column < HIDDEN ? (normal - mean) * deviation : 0.0f;
                else
                    normal = (normal - shared.columns[column]) * shared.columns[3 * width + column];
                at(sums[kinds - 2][i], e) += g;
                at(sums[kinds - 1][i], e) += g * normal;
                g *= at(factor, e);
                if (NORM == NORM_LAYER) mean_g += g, mean_gx += g * normal;
            }
        }
    }
    if constexpr (NORM == NORM_LAYER) {
        mean_g = row_sum(mean_g) * (1.0f / HIDDEN), mean_gx = row_sum(mean_gx) * (1.0f / HIDDEN);
#pragma unroll
        for (int i = 0; i < lane_quads; i++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (4 * (lane + lanes * i) + e < HIDDEN) at(d[i], e) = through_norm(deviation, at(d[i], e), at(x[i], e), mean_g, mean_gx);
    }
}

// Reads the numbers of each column into shared memory: 0 mean, 1 factor, 2 bias, 3 1 / deviation.
__device__ __forceinline__ void read_columns(const Activation& it, const Parameters& p, float* columns) {
    for (int column = threadIdx.x; column < width; column += threads) {
        float mean = 0.0f, deviation = 1.0f;
        if (NORM == NORM_BATCH && column < HIDDEN) {
            mean = __ldg(it.mean + column);
            deviation = 1.0f / sqrtf(__ldg(it.variance + column) + p.eps);
        }
        columns[column] = mean;
        columns[width + column] = deviation * parameter(it.weight, column);
        columns[2 * width + column] = parameter(it.bias, column);
        columns[3 * width + column] = deviation;
    }
}

// Writes the gradient of the first layer's input, in rows of num_features, from where the product leaves it.
__device__ __forceinline__ void input_gradient(const Parameters& p, const Shared& shared, int first, int count) {
    const int across = p.in_width / 16;
    for (int begin = 0; begin < across; begin += WARP_COLUMNS * COLUMN_TILES) {
        Product product;
        product.zero();
        product.start(p.fragments, 0, chunks, chunks, across, begin);
        product.multiply(shared.tile, !wide);
        product.each(shared.scales, p.scales, begin, [&](int row, int column, const float2& d) {
            if (row >= count) return;
#pragma unroll
            for (int e = 0; e < 2; e++)
                if (column + e < p.num_features) {
                    const float more = p.residual != nullptr ? __ldg(p.residual + at_row(first + row) + column + e) : 0.0f;
                    p.grad_x[size_t(first + row) * p.num_features + column + e] = (e == 0 ? d.x : d.y) + more;
                }
        });
    }
}
