// Pooling of a tile's molecules and its gradient.
#pragma once
#include "gcn_stack.cuh"

// Mean, sum or max over each molecule's rows; a thread a column
__device__ __forceinline__ void pool(const Parameters& p, const Group& group, const Tile& tile, const unsigned char* buffer) {
    for (int graph = tile.first_graph; graph < tile.end_graph; graph++) {
        const int begin = __ldg(p.ptr + graph) - tile.first_node, end = __ldg(p.ptr + graph + 1) - tile.first_node;
        for (int column = 32 * group.warp + group.lane; column < HIDDEN; column += 32 * WARPS) {
            float total = POOL == POOL_MAX && end > begin ? number(0xff800000u) : 0.0f;
#pragma unroll 4
            for (int row = begin; row < end; row++) {
                const float x = get(buffer, row, column);
                total = POOL != POOL_MAX ? total + x : (x > total || x != x ? x : total);
            }
            p.pooled[size_t(graph) * HIDDEN + column] = POOL == POOL_MEAN && end > begin ? total / static_cast<float>(end - begin) : total;
        }
    }
}

// Gradient of the pooled molecules in the rows of the last layer
__device__ __forceinline__ void unpool(Features& d, const Parameters& p, const Group& group, const Tile& tile, int first_row,
                                       const unsigned char* shares) {
    int graph = tile.first_graph, begin = tile.first_node, end = __ldg(p.ptr + graph + 1);
    each_row([&](int m, int half) {
        const int row = first_row + group.row(m, half), node = tile.first_node + row;
        const bool there = row < tile.num_nodes;
        while (there && node >= end) begin = end, graph++, end = __ldg(p.ptr + graph + 1);
        const float scale = POOL == POOL_MEAN ? 1.0f / static_cast<float>(end - begin) : 1.0f;
#pragma unroll
        for (int c = 0; c < spans; c++)
#pragma unroll
            for (int e = 0; e < own; e++) {
                const int column = span * c + own * group.t + e;
                float& x = d.at(m, half, c, e);
                if (!there || column >= HIDDEN)
                    x = 0.0f;
                else
                    x = scale * (POOL == POOL_MAX ? get(shares, row, column) : __ldg(p.grad_pooled + size_t(graph) * HIDDEN + column));
            }
    });
}

// pool=max: of equal largest atoms each takes an equal share
__device__ __forceinline__ void share_maximum(const Parameters& p, const Group& group, const Tile& tile, unsigned char* shares) {
    const float* last = p.last + size_t(tile.first_node) * width;
    for (int graph = tile.first_graph; graph < tile.end_graph; graph++) {
        const int begin = __ldg(p.ptr + graph) - tile.first_node, end = __ldg(p.ptr + graph + 1) - tile.first_node;
        for (int column = 32 * group.warp + group.lane; column < width; column += 32 * WARPS) {
            float largest = number(0xff800000u);
            for (int row = begin; row < end; row++) largest = fmaxf(largest, last[size_t(row) * width + column]);
            int equal = 0;
            for (int row = begin; row < end; row++) equal += last[size_t(row) * width + column] == largest;
            const float share = column < HIDDEN && equal > 0 ? p.grad_pooled[size_t(graph) * HIDDEN + column] / static_cast<float>(equal) : 0.0f;
            for (int row = begin; row < end; row++)
                put(shares, row, column, last[size_t(row) * width + column] == largest ? share : 0.0f);
        }
    }
}
