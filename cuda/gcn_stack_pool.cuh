// Pooling of a tile's molecules and its gradient.
#pragma once
#include "gcn_stack.cuh"

// Mean, sum or max over each molecule's rows; a thread a column
template <bool large>
__device__ void pool(const Parameters& p, const Group& group, const Tile& tile, const float* buffer) {
    for (int graph = tile.first_graph; graph < tile.end_graph; graph++) {
        const int begin = __ldg(p.ptr + graph) - tile.first_node, end = __ldg(p.ptr + graph + 1) - tile.first_node;
        for (int column = 32 * group.warp + group.lane; column < HIDDEN; column += 32 * WARPS) {
            float total = POOL == POOL_MAX && end > begin ? number(0xff800000u) : 0.0f;
#pragma unroll 4
            for (int row = begin; row < end; row++) {
                const float x = buffer[place<large>(row, column >> 2) + (column & 3)];
                total = POOL != POOL_MAX ? total + x : (x > total || x != x ? x : total);
            }
            p.pooled[size_t(graph) * HIDDEN + column] = POOL == POOL_MEAN && end > begin ? total / static_cast<float>(end - begin) : total;
        }
    }
}

// Gradient of the pooled molecules in the rows of the last layer
template <bool large>
__device__ __forceinline__ void unpool(Features& d, const Parameters& p, const Group& group, const Tile& tile, int first_row, const float* shares) {
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = first_row + group.row(m, half), node = tile.first_node + row;
            const bool there = row < tile.num_nodes;
            int graph = tile.first_graph;
            while (there && node >= __ldg(p.ptr + graph + 1)) graph++;
            const float scale = POOL == POOL_MEAN && there ? 1.0f / static_cast<float>(__ldg(p.ptr + graph + 1) - __ldg(p.ptr + graph)) : 1.0f;
#pragma unroll
            for (int c = 0; c < chunks; c++) {
                float v[4];
                if constexpr (POOL == POOL_MAX) {
                    const float4 share = there ? load<large>(shares, row, 4 * c + group.t) : nothing();
                    v[0] = share.x, v[1] = share.y, v[2] = share.z, v[3] = share.w;
                } else {
                    read4(v, p.grad_pooled + size_t(graph) * HIDDEN, 16 * c + 4 * group.t, there ? HIDDEN : 0, false);
                }
#pragma unroll
                for (int e = 0; e < 4; e++) d.at(m, half, c, e) = v[e] * scale;
            }
        }
}

// pool=max: of equal largest atoms each takes an equal share
template <bool large>
__device__ void share_maximum(const Parameters& p, const Group& group, const Tile& tile, float* shares) {
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
                shares[place<large>(row, column >> 2) + (column & 3)] = last[size_t(row) * width + column] == largest ? share : 0.0f;
        }
    }
}
