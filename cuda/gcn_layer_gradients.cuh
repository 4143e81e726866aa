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

    // OWN: the residual's gradient has been written by the block itself.
    template <bool OWN>
    __device__ __forceinline__ void load(const Parameters& p, int node, bool there, int lane) {
#pragma unroll
        for (int i = 0; i < lane_quads; i++) {
            const int quad = lane + lanes * i;
            const bool inside = there && quad < quads;
            raw[i] = NORM != NORM_NONE && p.out.on && inside ? load4(p.out.raw + at_row(node) + 4 * quad) : nothing();
            if constexpr (OWN)
                residual[i] = p.residual != nullptr && inside ? *reinterpret_cast<const float4*>(p.residual + at_row(node) + 4 * quad) : nothing();
            else
                residual[i] = p.residual != nullptr && inside ? load4(p.residual + at_row(node) + 4 * quad) : nothing();
            mask[i] = (!statistics || DROPOUT) && p.out.on && inside ? __ldg(p.out.masks + size_t(node) * quads + quad) : 15u;
        }
    }
};
constexpr int passes = (rows + teams - 1) / teams;                    // rows that a team takes one after the other
constexpr int early = passes * lane_quads <= 8 ? passes : 8 / lane_quads;  // rows whose loads begin before the product

template <bool OWN>
__device__ __forceinline__ void load_rows(Row (&given)[early], const Parameters& p, int first, int count) {
#pragma unroll
    for (int i = 0; i < early; i++) {
        const int row = threadIdx.x / lanes + i * teams;
        given[i].load<OWN>(p, first + row, row < count, threadIdx.x % lanes);
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
            bool alive = given.mask[i] >> e & 1;
            if constexpr (statistics) {
                alive = alive && normalised(at(x[i], e), shared.columns[column], at(factor, e), shared.columns[2 * width + column]) > 0.0f;
            }
            float& g = at(d[i], e);
            g = through_relu(alive, g, kept_scale(p));
            if constexpr (NORM != NORM_NONE) {
                float& normal = at(x[i], e);
                if (NORM == NORM_LAYER)
                    normal = column < HIDDEN ? (normal - mean) * deviation : 0.0f;
                else
                    normal = (normal - shared.columns[column]) * shared.columns[3 * width + column];
                at(sums[kinds - 2][i], e) += g;
                at(sums[kinds - 1][i], e) += g * normal;
                if (!statistics) g *= at(factor, e);
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

// Merges the blocks' column sums, of `atoms` atoms each.
__device__ __forceinline__ void add_up_gradients(const Parameters& p, const Shared& shared, int num_nodes, int atoms = rows) {
    add_up(
        p, num_nodes, kinds * width, shared.flag,
        [&](const float* from, float* to, int atoms, int each) {
            for (int column = threadIdx.x; column < kinds * width; column += threads) {
                float sum = 0.0f;
#pragma unroll 8
                for (int i = 0; i < parts_of(atoms, each); i++) sum += load_past_l1(from + i * kinds * width + column);
                to[column] = sum;
            }
        },
        atoms);
}

// Reads the numbers of each column into shared memory: 0 mean, 1 factor, 2 bias, 3 1 / deviation, 4 mean of the gradient, 5 its mean along
// the norm's output.
__device__ __forceinline__ void read_columns(const Activation& it, const Parameters& p, float* columns) {
    for (int column = threadIdx.x; column < width; column += threads) {
        float mean = 0.0f, deviation = 1.0f;
        if (statistics) mean = __ldg(it.moments + width + column), deviation = __ldg(it.moments + column);
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

// Adds up the layer's column sums. Block 0 writes them as gradients; with batch statistics every block gets their means.
__device__ __forceinline__ void read_sums(const Parameters& p, const Shared& shared, int num_nodes) {
    const Activation& it = p.in;
    const bool waits = statistics && it.on;
    if (!waits && blockIdx.x != 0) return;
    const int parts = parts_of(num_nodes, p.atoms_per_part);
    for (int item = threadIdx.x; item < shares * quads; item += threads) {
        const int quad = item % quads, share = item / quads;
        float4 sum[kinds];
#pragma unroll
        for (int kind = 0; kind < kinds; kind++) sum[kind] = nothing();
#pragma unroll 6
        for (int i = share; i < parts; i += shares)
#pragma unroll
            for (int kind = 0; kind < kinds; kind++) add(sum[kind], load4_past_l1(it.sums + (i * kinds + kind) * width + 4 * quad));
#pragma unroll
        for (int kind = 0; kind < kinds; kind++) four(shared.tile + (kind * shares + share) * width + 4 * quad) = sum[kind];
    }
    __syncthreads();
    for (int column = threadIdx.x; column < width; column += threads) {
        float sum[kinds] = {};
#pragma unroll
        for (int kind = 0; kind < kinds; kind++)
            for (int share = 0; share < shares; share++) sum[kind] += shared.tile[(kind * shares + share) * width + column];
        if (waits) {
            shared.columns[4 * width + column] = sum[0] / static_cast<float>(num_nodes);
            shared.columns[5 * width + column] = sum[kinds > 1] / static_cast<float>(num_nodes);
        }
        if (blockIdx.x != 0 || column >= HIDDEN) continue;
        it.grad_layer_bias[column] = waits ? 0.0f : sum[0];
        if (kinds > 1 && it.on) {
            it.grad_bias[column] = sum[kinds - 2];
            it.grad_weight[column] = sum[kinds - 1];
        }
    }
}

// Four columns of dZ, from the gradient of the layer's output. Where no norm waits (in the last layer), the same instructions return that
// gradient.
struct PendingGradient {
    float4 mean = nothing(), factor = make_float4(1.0f, 1.0f, 1.0f, 1.0f), bias = factor, inverse = nothing();
    float4 mean_g = nothing(), mean_gx = nothing();  // over all atoms, of the gradient of the norm's output, and of that times the normalised input
    float scale = 1.0f;  // of dropout
    const float *gradient, *raw = nullptr;
    const unsigned char* masks = nullptr;

    __device__ __forceinline__ PendingGradient(const Parameters& p, const Shared& shared, int quad) : gradient(p.gradient + 4 * quad) {
        if (!p.in.on) return;
        mean = shared.column4(0, quad), factor = shared.column4(1, quad), bias = shared.column4(2, quad);
        inverse = shared.column4(3, quad), mean_g = shared.column4(4, quad), mean_gx = shared.column4(5, quad);
        scale = p.dropout_scale;
        raw = p.in.raw + 4 * quad;
        if (DROPOUT) masks = p.in.masks + quad;
    }
    __device__ __forceinline__ float4 operator()(int node) const {
        return of(node, load4(gradient + at_row(node)), raw != nullptr ? load4(raw + at_row(node)) : nothing());
    }
    __device__ __forceinline__ float4 of(int node, const float4& d, const float4& x) const {
        const uint32 mask = DROPOUT && masks != nullptr ? __ldg(masks + size_t(node) * quads) : 15u;
        float4 z;
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const Column it = {at(mean, e), at(inverse, e), at(factor, e), at(bias, e)};
            const float dy = through_relu(it(at(x, e)) > 0.0f && (mask >> e & 1), at(d, e), DROPOUT ? scale : 1.0f);
            at(z, e) = it.through_statistics(at(x, e), dy, at(mean_g, e), at(mean_gx, e));
        }
        return z;
    }
};

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
