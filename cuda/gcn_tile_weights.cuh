// How forward reads weights and biases: from shared memory where they fit, else from global memory.
#pragma once
#include "gcn_tile.cuh"

// Whether the first layer reads its weights in its own way.
constexpr bool first_apart = WIDE_INPUT || !SHARED_WEIGHTS;

// Returns the lane's segment of W [out, in] as right operand: the input columns of output column n = g of a column tile, counted from
// `base`.
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

// Returns the address of a layer's biases [width], which lie behind the weights in shared memory.
__device__ __forceinline__ float* shared_biases(const Parameters& p, Segment* shared, int layer) {
    return reinterpret_cast<float*>(shared + p.num_layers * spans * column_tiles * 32) + layer * width;
}

// Puts the weights in the order in which warps read them: into shared memory if they fit (complete after `wait_for_weights`), and into
// `saved` for backward.
__device__ __forceinline__ void order_weights(const Parameters& p, const Group& group, Segment* shared) {
    constexpr int blocks = spans * column_tiles, at_once = 8;
    constexpr bool as_they_are = !packed && !padded && ALIGNED;
    const int warps = blockDim.x / 32, warp = threadIdx.x / 32, end = p.num_layers * blocks;
    for (int first = blocks + at_once * warp; SHARED_WEIGHTS && first < end; first += at_once * warps) {
        Segment all[at_once];
#pragma unroll
        for (int i = 0; i < at_once; i++) {
            const int at = min(first + i, end - 1), b = at % blocks / column_tiles, tile = at % column_tiles;
            const float* weight = p.layers[at / blocks].weight;
            if (as_they_are)
                copy16(shared + 32 * at + group.lane, weight + (tile_column(tile, group.g) * HIDDEN + first_column(b, group.t)), true);
            else
                all[i] = read_weights<false>(p, weight, 0, b, tile, group);
        }
#pragma unroll
        for (int i = 0; !as_they_are && i < at_once; i++) shared[32 * min(first + i, end - 1) + group.lane] = all[i];
    }
    for (int i = warps - 1 - warp; SHARED_WEIGHTS && !WIDE_INPUT && i < blocks; i += warps) {
        Segment* to = shared + 32 * i + group.lane;
        if constexpr (packed) {
            *to = read_weights<true>(p, p.layers[0].weight, 0, i / column_tiles, i % column_tiles, group);
        } else {
            const int out = tile_column(i % column_tiles, group.g), in = first_column(i / column_tiles, group.t);
            const float* weight = p.layers[0].weight;
#pragma unroll
            for (int e = 0; e < own; e++) {
                const bool there = out < HIDDEN && in + e < p.num_features;
                copy4(to->word + e, weight + (there ? out * p.num_features + in + e : 0), there);
            }
        }
    }
    for (int layer = warp; SHARED_WEIGHTS && layer < p.num_layers; layer += warps)
        for (int column = 4 * group.lane; column < width; column += 4 * 32) {
            float* to = shared_biases(p, shared, layer) + column;
            if (!padded && ALIGNED)
                copy16(to, p.layers[layer].bias + column, true);
            else
                read4(to, p.layers[layer].bias, column, HIDDEN, false);
        }
    // The last warps do it, since some of them have no tile.
    for (int i = gridDim.x - 1 - blockIdx.x + gridDim.x * (warps - 1 - warp); SAVE && i < (p.num_layers - 1) * blocks; i += gridDim.x * warps) {
        const int in = tile_column(i % column_tiles, group.g), out = first_column(i % blocks / column_tiles, group.t);
        float v[own];
#pragma unroll
        for (int e = 0; e < own; e++)
            v[e] = in < HIDDEN && out + e < HIDDEN ? __ldg(p.layers[1 + i / blocks].weight + size_t(out + e) * HIDDEN + in) : 0.0f;
        store(p.transposed + 32 * size_t(i) * rounded_bytes, group.lane, rounded(segment(v)));
    }
}

// Waits for the weights before their first use. All threads of the block must call it.
__device__ __forceinline__ void wait_for_weights() {
    if (!SHARED_WEIGHTS) return;
    wait_for_copies();
    __syncthreads();
}
