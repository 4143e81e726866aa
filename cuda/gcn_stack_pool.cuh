// Pooling of a tile's molecules and its gradient.
#pragma once
#include "gcn_stack.cuh"

// Mean, sum or max over each molecule's rows; a thread a column
template <bool large>
__device__ __forceinline__ void pool(const Parameters& p, const Group& group, const Tile& tile, const unsigned char* buffer) {
    for (int graph = tile.first_graph; graph < tile.end_graph; graph++) {
        const int begin = __ldg(p.ptr + graph) - tile.first_node, end = __ldg(p.ptr + graph + 1) - tile.first_node;
        for (int column = 32 * group.warp + group.lane; column < HIDDEN; column += 32 * WARPS) {
            float total = POOL == POOL_MAX && end > begin ? number(0xff800000u) : 0.0f;
#pragma unroll 4
            for (int atom = begin; atom < end; atom++) {
                const float x = get(buffer, begin_of<large>(buffer, atom), column);
                total = POOL != POOL_MAX ? total + x : (x > total || x != x ? x : total);
            }
            p.pooled[size_t(graph) * HIDDEN + column] = POOL == POOL_MEAN && end > begin ? total / static_cast<float>(end - begin) : total;
        }
    }
}

// The molecule of an atom of a tile; out of line, since inlined for each row it costs compile time
__device__ __noinline__ int molecule_of(const int* ptr, int node, int begin, int end) {
#pragma unroll 1
    while (end - begin > 1) {
        const int middle = (begin + end) / 2;
        if (__ldg(ptr + middle) <= node)
            begin = middle;
        else
            end = middle;
    }
    return begin;
}

// Gradient of the pooled molecules in the rows of the last layer
template <bool large>
__device__ __forceinline__ void unpool(Features& d, const Parameters& p, const Group& group, const Tile& tile, int first_row,
                                       const unsigned char* shares) {
    each_row([&](int m, int half) {
        const int row = first_row + group.row(m, half);
        const bool there = row < tile.num_nodes;
        const int atom = there ? atom_at<large>(shares, row) : 0;
        const int graph = POOL == POOL_MAX ? 0 : molecule_of(p.ptr, tile.first_node + atom, tile.first_graph, tile.end_graph);
        const float scale = POOL == POOL_MEAN ? 1.0f / static_cast<float>(__ldg(p.ptr + graph + 1) - __ldg(p.ptr + graph)) : 1.0f;
#pragma unroll
        for (int c = 0; c < spans; c++)
#pragma unroll
            for (int e = 0; e < own; e++) {
                const int column = span * c + own * group.t + e;
                float& x = d.at(m, half, c, e);
                if (!there || column >= HIDDEN)
                    x = 0.0f;
                else
                    x = scale * (POOL == POOL_MAX ? get(shares, begin_of<large>(shares, atom), column) : __ldg(p.grad_pooled + size_t(graph) * HIDDEN + column));
            }
    });
}

// pool=max: of equal largest atoms each takes an equal share
template <bool large>
__device__ __forceinline__ void share_maximum(const Parameters& p, const Group& group, const Tile& tile, unsigned char* shares) {
    const float* last = p.last + size_t(tile.first_node) * width;
    for (int graph = tile.first_graph; graph < tile.end_graph; graph++) {
        const int begin = __ldg(p.ptr + graph) - tile.first_node, end = __ldg(p.ptr + graph + 1) - tile.first_node;
        for (int column = 32 * group.warp + group.lane; column < width; column += 32 * WARPS) {
            float largest = number(0xff800000u);
            for (int atom = begin; atom < end; atom++) largest = fmaxf(largest, last[size_t(atom) * width + column]);
            int equal = 0;
            for (int atom = begin; atom < end; atom++) equal += last[size_t(atom) * width + column] == largest;
            const float share = column < HIDDEN && equal > 0 ? p.grad_pooled[size_t(graph) * HIDDEN + column] / static_cast<float>(equal) : 0.0f;
            for (int atom = begin; atom < end; atom++)
                put(shares, begin_of<large>(shares, atom), column, last[size_t(atom) * width + column] == largest ? share : 0.0f);
        }
    }
}
