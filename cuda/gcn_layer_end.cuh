// The end of a layer's forward: what follows the product of a block's rows.
#pragma once
#include "gcn_layer_activation.cuh"

// Reads what follows the product into shared memory, a number of each column: 0: bias, 1: factor, 2: the norm's bias, 3: mean.
__device__ __forceinline__ void read_parameters(const Parameters& p, const Shared& shared) {
    for (int column = threadIdx.x; column < width; column += threads) {
        shared.columns[column] = parameter(p.bias, column);
        if ((NORM == NORM_LAYER || NORM == NORM_BATCH) && p.out.on) {
            float factor = parameter(p.out.weight, column);
            if (NORM == NORM_BATCH) {
                factor *= column < HIDDEN ? 1.0f / sqrtf(__ldg(p.out.variance + column) + p.eps) : 0.0f;
                shared.columns[3 * width + column] = parameter(p.out.mean, column);
            }
            shared.columns[width + column] = factor;
            shared.columns[2 * width + column] = parameter(p.out.bias, column);
        }
    }
}

// Applies norm, relu, dropout and residual to the product's rows, with a few lanes for each row.
__device__ __forceinline__ void finish(const Parameters& p, const Shared& shared, int first, int count) {
    const int lane = threadIdx.x % lanes;
#pragma unroll 2
    for (int begin = 0; begin < count; begin += teams) {
        const int row = begin + threadIdx.x / lanes, node = first + row;
        const bool there = row < count;  // all lanes of a warp continue together
        float4 v[lane_quads];
#pragma unroll
        for (int i = 0; i < lane_quads; i++) {
            const int quad = lane + lanes * i;
            v[i] = nothing();
            if (quad >= quads || !there) break;
            v[i] = four(shared.own_rows + row * stride + 4 * quad);
            add(v[i], shared.column4(0, quad));
        }
        if (p.out.on) activate(v, p, node, there, lane, shared.columns);
#pragma unroll
        for (int i = 0; i < lane_quads; i++) {
            const int quad = lane + lanes * i;
            if (quad >= quads || !there) break;
            if (p.residual != nullptr) add(v[i], *reinterpret_cast<const float4*>(p.residual + at_row(node) + 4 * quad));
            four(shared.own_rows + row * stride + 4 * quad) = v[i];
            if (p.output != nullptr) four(p.output + at_row(node) + 4 * quad) = v[i];
        }
    }
}
