// Norm, relu and dropout of a layer's output. Where the last layer's wait for statistics of all atoms, the pooling applies them.
#pragma once
#include "gcn_layer_tile.cuh"

// Computes the statistics of the layer before from the parts' sums. Shared memory gets 0: mean, 1: weight / deviation, 2: bias. Block 0
// stores them, from the biased variance, and updates the running ones.
__device__ __forceinline__ void find_statistics(const Parameters& p, const Activation& it, const Shared& shared, int num_nodes) {
    const int parts = parts_of(num_nodes, p.atoms_per_part);
    for (int item = threadIdx.x; item < shares * quads; item += threads) {
        const int quad = item % quads, share = item / quads;
        const float* begin = it.sums + 4 * quad;
        const float4 origin = num_nodes > 0 ? load4_past_l1(begin) : nothing();
        Distances all[4] = {{origin.x}, {origin.y}, {origin.z}, {origin.w}};
#pragma unroll 6
        for (int i = share; i < parts; i += shares) {
            const float4 mean = load4_past_l1(begin + i * 2 * width), squares = load4_past_l1(begin + (i * 2 + 1) * width);
            const float atoms = static_cast<float>(part_size(num_nodes, p.atoms_per_part, i));
#pragma unroll
            for (int e = 0; e < 4; e++) all[e].add(at(mean, e), at(squares, e), atoms);
        }
        four(shared.tile + share * width + 4 * quad) = make_float4(all[0].sum, all[1].sum, all[2].sum, all[3].sum);
        four(shared.tile + (shares + share) * width + 4 * quad) = make_float4(all[0].squares, all[1].squares, all[2].squares, all[3].squares);
        if (share == 0) four(shared.columns + 4 * quad) = origin;
    }
    __syncthreads();
    for (int column = threadIdx.x; column < width; column += threads) {
        Distances all = {shared.columns[column]};
#pragma unroll
        for (int share = 0; share < shares; share++)
            all.sum += shared.tile[share * width + column], all.squares += shared.tile[(shares + share) * width + column];
        const Moments moments = all.moments(num_nodes);
        const float variance = moments.squares / static_cast<float>(num_nodes > 0 ? num_nodes : 1), deviation = 1.0f / sqrtf(variance + p.eps);
        shared.columns[column] = moments.mean;
        shared.columns[width + column] = deviation * parameter(it.weight, column);
        shared.columns[2 * width + column] = parameter(it.bias, column);
        if (blockIdx.x != 0) continue;
        it.moments[column] = deviation;
        it.moments[width + column] = moments.mean;
        if (column >= HIDDEN) continue;
        const Running before = {__ldg(it.mean + column), __ldg(it.variance + column)};
        const Running now = before.after(moments, static_cast<float>(num_nodes), p.momentum);
        it.new_mean[column] = now.mean, it.new_variance[column] = now.variance;
    }
}

// Four columns of this layer's input, from the norm's input of the layer before. Where no norm waits, the same instructions return the
// input as it is.
struct Pending {
    float4 mean = nothing(), factor = make_float4(1.0f, 1.0f, 1.0f, 1.0f), bias = nothing();
    float floor = number(0xff800000u), scale = 1.0f;  // of relu and dropout
    const float *raw, *residual = nullptr;
    const unsigned char* masks = nullptr;
    int raw_stride;

    __device__ __forceinline__ Pending(const Parameters& p, const Shared& shared, int quad) : raw(p.input + 4 * quad), raw_stride(p.in_width) {
        if (!p.in.on) return;
        mean = shared.column4(0, quad), factor = shared.column4(1, quad), bias = shared.column4(2, quad);
        floor = 0.0f, scale = p.dropout_scale;
        raw = p.in.raw + 4 * quad, raw_stride = width;
        if (DROPOUT) masks = p.in.masks + quad;
        if (p.input != nullptr) residual = p.input + 4 * quad;
    }
    __device__ __forceinline__ float4 activated(int node, const float4& x) const {
        const uint32 mask = DROPOUT && masks != nullptr ? __ldg(masks + size_t(node) * quads) : 15u;
        float4 y;
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float value = at_least(normalised(at(x, e), at(mean, e), at(factor, e), at(bias, e)), floor);
            at(y, e) = DROPOUT ? dropped(mask >> e & 1, value, scale) : value;
        }
        return y;
    }
    __device__ __forceinline__ float4 operator()(int node) const {
        float4 y = activated(node, load4(raw + size_t(node) * raw_stride));
        if (residual != nullptr) add(y, load4(residual + at_row(node)));
        return y;
    }
};

// Returns the sum over the lanes of a row.
__device__ __forceinline__ float row_sum(float x) {
#pragma unroll
    for (int mask = lanes / 2; mask > 0; mask >>= 1) x += shuffle_xor(x, mask);
    return x;
}

// Applies norm, relu and dropout. v is the row's output of the linear part; lane l has quads l, l + lanes, ...
__device__ __forceinline__ void activate(float4 (&v)[lane_quads], const Parameters& p, int node, bool there, int lane, const float* columns) {
    const Activation& it = p.out;
    float mean = 0.0f, deviation = 0.0f;
    if constexpr (NORM == NORM_LAYER) {
#pragma unroll
        for (int moment = 1; moment <= 2; moment++) {
            float sum = 0.0f;
#pragma unroll
            for (int i = 0; i < lane_quads; i++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    if (4 * (lane + lanes * i) + e < HIDDEN) {
                        const float x = at(v[i], e) - mean;
                        sum += moment == 1 ? x : x * x;
                    }
            sum = row_sum(sum) * (1.0f / HIDDEN);
            if (moment == 1)
                mean = sum;
            else
                deviation = 1.0f / sqrtf(sum + p.eps);
        }
        if (there && lane == 0 && it.moments != nullptr) it.moments[2 * node] = deviation, it.moments[2 * node + 1] = mean;
    }
#pragma unroll
    for (int i = 0; i < lane_quads; i++) {
        const int quad = lane + lanes * i;
        if (quad >= quads || !there) break;
        uint32 mask = DROPOUT ? drawn(p, node, quad, it.layer) : 15u;
        if (NORM != NORM_NONE && it.raw != nullptr) four(it.raw + at_row(node) + 4 * quad) = v[i];
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float& y = at(v[i], e);
            const int column = 4 * quad + e;
            if constexpr (NORM == NORM_LAYER) y = (y - mean) * deviation * columns[width + column] + columns[2 * width + column];
            if constexpr (NORM == NORM_BATCH) y = normalised(y, columns[3 * width + column], columns[width + column], columns[2 * width + column]);
            if (!(y > 0.0f)) mask &= ~(1u << e);
            y = relu(y);
            if (DROPOUT) y = dropped(mask >> e & 1, y, p.dropout_scale);
            if (column >= HIDDEN) y = 0.0f;
        }
        if (it.masks != nullptr) it.masks[size_t(node) * quads + quad] = static_cast<unsigned char>(mask);
    }
}
