// How forward reads weights and biases: from shared memory where they fit, else from where they lie.
#pragma once
#include "gcn_stack.cuh"

// The lane's segment of W [out, in] as right operand: ins of the out column n = g of a column tile, counted from `base`
template <bool first>
__device__ __forceinline__ Segment read_weights(const Parameters& p, const float* weight, int base, int b, int tile, const Group& group) {
    const int out = tile_column(tile, group.g), in = base + first_column(b, group.t), columns = first ? p.num_features : HIDDEN;
    float v[own];
#pragma unroll
    for (int i = 0; i < own; i += 4) {
        if (first || padded || !ALIGNED) {
            read4(v + i, weight + size_t(out) * columns, in + i, out < HIDDEN ? columns : 0, ALIGNED && !first);
        } else {
            const float4 all = __ldg(reinterpret_cast<const float4*>(weight + (out * HIDDEN + in + i)));
            v[i] = all.x, v[i + 1] = all.y, v[i + 2] = all.z, v[i + 3] = all.w;
        }
    }
    return segment(v);
}

// A layer's biases [width] behind the weights in shared memory, where these are there
__device__ __forceinline__ float* shared_biases(const Parameters& p, Segment* shared, int layer) {
    return reinterpret_cast<float*>(shared + p.num_layers * spans * column_tiles * 32) + layer * width;
}

// Weights in the order in which warps read them: in shared memory if they fit, and for backward.
__device__ __forceinline__ void order_weights(const Parameters& p, const Group& group, Segment* shared) {
    constexpr int blocks = spans * column_tiles;
    const int warps = blockDim.x / 32, first = threadIdx.x / 32;
    for (int i = first; SHARED_WEIGHTS && !WIDE_INPUT && i < blocks; i += warps)
        shared[32 * i + group.lane] = read_weights<true>(p, p.layers[0].weight, 0, i / column_tiles, i % column_tiles, group);
#pragma unroll 8
    for (int i = blocks + first; SHARED_WEIGHTS && i < p.num_layers * blocks; i += warps)
        shared[32 * i + group.lane] = read_weights<false>(p, p.layers[i / blocks].weight, 0, i % blocks / column_tiles, i % column_tiles, group);
    for (int i = threadIdx.x; SHARED_WEIGHTS && i < p.num_layers * width; i += blockDim.x)
        shared_biases(p, shared, 0)[i] = i % width < HIDDEN ? __ldg(p.layers[i / width].bias + i % width) : 0.0f;
    for (int i = first + warps * blockIdx.x; SAVE && i < (p.num_layers - 1) * blocks; i += warps * gridDim.x) {
        const int in = tile_column(i % column_tiles, group.g), out = first_column(i % blocks / column_tiles, group.t);
        float v[own];
#pragma unroll
        for (int e = 0; e < own; e++)
            v[e] = in < HIDDEN && out + e < HIDDEN ? __ldg(p.layers[1 + i / blocks].weight + size_t(out + e) * HIDDEN + in) : 0.0f;
        store(p.transposed + (32 * size_t(i) + group.lane) * sizeof(Segment), segment(v));
    }
    __syncthreads();
}
