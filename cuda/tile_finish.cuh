// Norms, activations and dropout of a tile's rows, the scaling of rows to length 1, and the gradients of these.
//
// Macros: NORMS (the kinds of norms that the network has, one bit each), OTHERS (whether it has activations besides relu).
#pragma once
#include "epilogue.cuh"
#include "kinds.cuh"
#include "tile_rows.cuh"

__device__ __forceinline__ bool is_layer(int kind) { return NORMS & NORM_LAYER && kind == NORM_LAYER; }
__device__ __forceinline__ bool is_batch(int kind) { return NORMS & NORM_BATCH && kind == NORM_BATCH; }
__device__ __forceinline__ bool is_none(int kind) { return NORMS == 0 || kind == NORM_NONE; }

// Mean and 1 / deviation of a lane's numbers: of their rows, or of their columns.
struct TileNorm {
    float mean[2], deviation[2];

    __device__ __forceinline__ TileNorm(const Parameters& p, const Tile& tile, Features& x, int kind) {
#pragma unroll
        for (int half = 0; half < 2; half++) mean[half] = 0.0f, deviation[half] = tile.has(half) ? 1.0f : 0.0f;
        if (!is_layer(kind)) return;
        float squares[2] = {};
        x.each(tile, HIDDEN, [&](int, int half, float(&v)[4], int) { mean[half] += (v[0] + v[1]) + (v[2] + v[3]); });
#pragma unroll
        for (int half = 0; half < 2; half++) mean[half] = over_four_lanes(mean[half]) * (1.0f / HIDDEN);
        x.each(tile, HIDDEN, [&](int, int half, float(&v)[4], int column) {
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (HIDDEN % 16 == 0 || column + e < HIDDEN) squares[half] = fmaf(v[e] - mean[half], v[e] - mean[half], squares[half]);
        });
#pragma unroll
        for (int half = 0; half < 2; half++)
            deviation[half] *= 1.0f / sqrtf(fmaf(over_four_lanes(squares[half]), 1.0f / HIDDEN, p.norm_eps));
    }
};

// The norm of four columns: normal = (x - mean) deviation, y = normal weight + bias. Without a norm y = x.
struct TileColumns {
    float4 mean = nothing(), deviation = make_float4(1.0f, 1.0f, 1.0f, 1.0f), weight = make_float4(1.0f, 1.0f, 1.0f, 1.0f), bias = nothing();

    __device__ __forceinline__ TileColumns(const Parameters& p, const Instruction& it, int column) {
        if (is_none(it.kind)) return;
        weight = load_vector(it.weight, column, HIDDEN), bias = load_vector(it.bias, column, HIDDEN);
        if (!is_batch(it.kind)) return;
        mean = load_vector(it.more, column, HIDDEN);
        const float4 variance = load_vector(it.extra, column, HIDDEN);
#pragma unroll
        for (int e = 0; e < 4; e++) at(deviation, e) = 1.0f / sqrtf(at(variance, e) + p.norm_eps);
    }
    // Forward and backward compute the same bits, so that they agree on what relu keeps.
    __device__ __forceinline__ float factor(const TileNorm& norm, int half, int e) const { return norm.deviation[half] * at(deviation, e); }
    __device__ __forceinline__ float normal(const TileNorm& norm, int half, int e, float x) const {
        return (x - (norm.mean[half] + at(mean, e))) * factor(norm, half, e);
    }
    __device__ __forceinline__ float operator()(const TileNorm& norm, int half, int e, float x) const {
        return fmaf(normal(norm, half, e, x), at(weight, e), at(bias, e));
    }
};

// Zeroes what dropout drops of four columns and scales the rest.
__device__ __forceinline__ void drop(const Parameters& p, const Tile& tile, int half, int column, int site, float (&v)[4]) {
    if (!DROPOUT || site < 0) return;
    const uint32 kept = drawn(p, tile.atom(half), column / 4, site);
#pragma unroll
    for (int e = 0; e < 4; e++) v[e] = dropped(kept >> e & 1, v[e], p.dropout_scale);
}

__device__ __forceinline__ int known(int activation) { return OTHERS ? activation : ACTIVATION_RELU; }

// x = dropout(act(x))
__device__ __forceinline__ void activate(const Parameters& p, const Tile& tile, Features& x, const Instruction& it) {
    if (!it.activation && it.site < 0) return;
    x.each(tile, it.width, [&](int, int half, float(&v)[4], int column) {
#pragma unroll
        for (int e = 0; e < 4; e++) v[e] = it.activation ? activated(known(it.activation), v[e]) : v[e];
        drop(p, tile, half, column, it.site, v);
    });
}

// x = norm(x)
__device__ __forceinline__ void normed(const Parameters& p, const Tile& tile, Features& x, const Instruction& it) {
    if (is_none(it.kind)) return;
    const TileNorm norm(p, tile, x, it.kind);
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        if (16 * c >= HIDDEN) continue;
        const int column = 16 * c + 4 * tile.t;
        const TileColumns columns(p, it, column);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const bool there = HIDDEN % 16 == 0 || column + i % 4 < HIDDEN;
            float& v = x.v[c][i / 4][i % 4];
            v = there ? columns(norm, i / 4, i % 4, v) : 0.0f;
        }
    }
}

// Turns the gradient of dropout(act(norm(x))) into that of x, and adds to the sums for the gradients of the norm's bias and weight.
__device__ __forceinline__ void finish_gradient(const Parameters& p, const Tile& tile, Features& grad, const Instruction& it, float* sums) {
    Features x;
    if (OTHERS && is_none(it.kind)) {  // of any width
        if (it.activation) x.load(tile, it.rows, it.width);
        return grad.each(tile, it.width, [&](int c, int half, float(&g)[4], int column) {
            drop(p, tile, half, column, it.site, g);
#pragma unroll
            for (int e = 0; e < 4; e++) g[e] = through_activation(it.activation, x.v[c][half][e], g[e]);
        });
    }
    if (!is_none(it.kind) || it.activation) x.load(tile, it.rows, HIDDEN);
    const TileNorm norm(p, tile, x, it.kind);
    float mean_g[2] = {}, mean_gx[2] = {};  // over a row, of the gradient times weight, and of that times the normalised x
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        if (16 * c >= HIDDEN) continue;
        const int column = 16 * c + 4 * tile.t;
        const TileColumns columns(p, it, column);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            drop(p, tile, half, column, it.site, grad.v[c][half]);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float &g = grad.v[c][half][e], &v = x.v[c][half][e];
                const float y = is_none(it.kind) ? v : columns(norm, half, e, v);
                if (it.activation) g = through_activation(known(it.activation), y, g);
                if (is_none(it.kind)) continue;
                const bool there = HIDDEN % 16 == 0 || column + e < HIDDEN;
                v = there ? columns.normal(norm, half, e, v) : 0.0f;
                const float weighted = g * at(columns.weight, e);
                mean_g[half] += weighted, mean_gx[half] = fmaf(weighted, v, mean_gx[half]);
            }
        }
    }
    if (is_none(it.kind)) return;
    add_columns(tile, sums, [&](int c, int i) {
        const float *g = grad.v[c][0], *more = grad.v[c][1], *v = x.v[c][0], *w = x.v[c][1];
        return i < 4 ? g[i % 4] + more[i % 4] : fmaf(g[i % 4], v[i % 4], more[i % 4] * w[i % 4]);
    });
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const bool of_row = is_layer(it.kind);
        mean_g[half] = of_row ? over_four_lanes(mean_g[half]) * (1.0f / HIDDEN) : 0.0f;
        mean_gx[half] = of_row ? over_four_lanes(mean_gx[half]) * (1.0f / HIDDEN) : 0.0f;
    }
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        if (16 * c >= HIDDEN) continue;
        const int column = 16 * c + 4 * tile.t;
        const TileColumns columns(p, it, column);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int half = i / 4, e = i % 4;
            const bool there = HIDDEN % 16 == 0 || column + e < HIDDEN;
            float& g = grad.v[c][half][e];
            const float factor = columns.factor(norm, half, e), weighted = g * at(columns.weight, e);
            g = there ? through_norm(factor, weighted, x.v[c][half][e], mean_g[half], mean_gx[half]) : 0.0f;
        }
    }
}

// Multiplies by the derivative of the relu and dropout that made `rows`.
__device__ __forceinline__ void mask(const Tile& tile, Features& grad, const Instruction& it) {
    Features value;
    value.load(tile, it.rows, it.width);
    grad.each(tile, it.width, [&](int c, int half, float(&g)[4], int) {
#pragma unroll
        for (int e = 0; e < 4; e++) g[e] = through_relu(value.v[c][half][e] > 0.0f, g[e], it.scale);
    });
}

constexpr float shortest = 1e-12f;  // as torch.nn.functional.normalize

struct Pair {
    float of[2];
};
// Divides rows by their length, and returns what they were divided by.
__device__ __forceinline__ Pair normalize(const Tile& tile, Features& x) {
    float squares[2] = {};
    Pair divisor;
    x.each(tile, HIDDEN, [&](int, int half, float(&v)[4], int) {
#pragma unroll
        for (int e = 0; e < 4; e++) squares[half] = fmaf(v[e], v[e], squares[half]);
    });
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float length = sqrtf(over_four_lanes(squares[half]));
        divisor.of[half] = length < shortest ? shortest : length;
    }
    x.each(tile, HIDDEN, [&](int, int half, float(&v)[4], int) {
#pragma unroll
        for (int e = 0; e < 4; e++) v[e] /= divisor.of[half];
    });
    return divisor;
}
__device__ __forceinline__ void normalize_gradient(const Tile& tile, Features& grad, const Instruction& it) {
    Features x;
    x.load(tile, it.rows, HIDDEN);
    const Pair divisor = normalize(tile, x);
    float along[2] = {};
    grad.each(tile, HIDDEN, [&](int c, int half, float(&g)[4], int) {
#pragma unroll
        for (int e = 0; e < 4; e++) along[half] = fmaf(g[e], x.v[c][half][e], along[half]);
    });
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float sum = over_four_lanes(along[half]);
        along[half] = divisor.of[half] > shortest ? sum : 0.0f;  // shorter rows are divided by a constant
    }
    grad.each(tile, HIDDEN, [&](int c, int half, float(&g)[4], int) {
#pragma unroll
        for (int e = 0; e < 4; e++) g[e] = (g[e] - x.v[c][half][e] * along[half]) / divisor.of[half];
    });
}
