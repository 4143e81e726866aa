// The end of a layer's backward: what follows the product of a block's gradients.
#pragma once
#include "gcn_layer_gradients.cuh"

// Ends a row. Its gradient is left in own_rows, for the next layer.
__device__ __forceinline__ void finish_row(const Parameters& p, const Shared& shared, int first, int count, int row, Row& given, Sums& sums) {
    const int lane = threadIdx.x % lanes, node = first + row;
    const bool there = row < count;  // all lanes of a warp continue together
    float4 d[lane_quads];
#pragma unroll
    for (int i = 0; i < lane_quads; i++) {
        const int quad = lane + lanes * i;
        d[i] = nothing();
        if (quad >= quads || !there) break;
        d[i] = p.grad_pooled != nullptr ? unpool(p, node, quad) : four(shared.own_rows + row * stride + 4 * quad);
        add(d[i], given.residual[i]);
        if (p.output != nullptr) four(p.output + at_row(node) + 4 * quad) = d[i];
    }
    if (p.out.on) through(d, sums, p, node, there, lane, shared, given);
#pragma unroll
    for (int i = 0; i < lane_quads; i++) {
        const int quad = lane + lanes * i;
        if (quad >= quads || !there) break;
        four(shared.own_rows + row * stride + 4 * quad) = d[i];
        if (p.next_gradient != nullptr) four(p.next_gradient + at_row(node) + 4 * quad) = d[i];
        add(sums[0][i], d[i]);
    }
}

// Takes the gradients of a block's rows through dropout, relu and norm, and leaves the block's column sums.
__device__ __forceinline__ void finish(const Parameters& p, const Shared& shared, int first, int count, Row (&given)[early]) {
    const int lane = threadIdx.x % lanes, team = threadIdx.x / lanes;
    Sums sums = {};
#pragma unroll
    for (int i = 0; i < early; i++) finish_row(p, shared, first, count, team + i * teams, given[i], sums);
#pragma unroll 1
    for (int begin = early * teams; begin < count; begin += teams) {
        Row more;
        more.load(p, first + begin + team, begin + team < count, lane);
        finish_row(p, shared, first, count, begin + team, more, sums);
    }
    constexpr int room = rows * stride;                                  // of the tile
    constexpr int together = kinds * teams * width <= room ? kinds : 1;  // kinds of sums for which there is room
    static_assert(together * teams * width <= room, "a kind's sums fit shared memory");
    float* to = tile_sums(p);
#pragma unroll
    for (int first_kind = 0; first_kind < kinds; first_kind += together) {
        __syncthreads();
#pragma unroll
        for (int kind = 0; kind < together; kind++)
#pragma unroll
            for (int i = 0; i < lane_quads; i++) {
                const int quad = lane + lanes * i;
                if (quad < quads) four(shared.tile + (kind * teams + team) * width + 4 * quad) = sums[first_kind + kind][i];
            }
        __syncthreads();
        for (int item = threadIdx.x; item < together * width; item += threads) {
            float sum = 0.0f;
#pragma unroll(wide ? 4 : teams)
            for (int i = 0; i < teams; i++) sum += shared.tile[(item / width * teams + i) * width + item % width];
            to[first_kind * width + item] = sum;
        }
    }
}
