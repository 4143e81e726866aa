// Mean or sum of the rows of each molecule of a tile, and the gradient.
//
// Macro: POOL.
#pragma once
#include "kinds.cuh"
#include "tile_rows.cuh"

// Writes the pooled rows of the tile's molecules. The block's threads share molecules and columns.
__device__ __forceinline__ void pool(const Parameters& p, const Tile& tile, const Instruction& it, const float* slot) {
    constexpr int quads = (HIDDEN + 3) / 4;
    for (int item = threadIdx.x; item < (tile.end_graph - tile.first_graph) * quads; item += threads) {
        const int graph = tile.first_graph + item / quads, column = item % quads * 4;
        const int begin = __ldg(p.ptr + graph) - tile.first, end = __ldg(p.ptr + graph + 1) - tile.first;
        float4 sum = nothing();
#pragma unroll 4
        for (int row = begin; row < min(end, tile_rows); row++) add(sum, row_at(slot, row, column));
        const float count = POOL == POOL_MEAN && end > begin ? static_cast<float>(end - begin) : 1.0f;
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (column + e < HIDDEN) it.rows[size_t(graph) * HIDDEN + column + e] = tile.breaks_promise() ? number(0x7fffffffu) : at(sum, e) / count;
    }
}

// The gradient of the rows of a lane's atoms.
__device__ __forceinline__ void pool_gradient(const Parameters& p, const Tile& tile, Features& x, const Instruction& it) {
    int graph[2];
    float share[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int beyond = tile.end_graph;
        graph[half] = tile.first_graph, share[half] = 1.0f;
        if (!tile.has(half)) continue;
        while (beyond - graph[half] > 1) {  // the last molecule whose first atom is not after this one
            const int middle = (graph[half] + beyond) / 2;
            if (__ldg(p.ptr + middle) <= tile.atom(half))
                graph[half] = middle;
            else
                beyond = middle;
        }
        if (POOL == POOL_MEAN) share[half] = 1.0f / static_cast<float>(__ldg(p.ptr + graph[half] + 1) - __ldg(p.ptr + graph[half]));
    }
    x.zero();
    x.each(tile, HIDDEN, [&](int, int half, float(&v)[4], int column) {
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (tile.has(half) && column + e < HIDDEN) v[e] = __ldg(it.rows + size_t(graph[half]) * HIDDEN + column + e) * share[half];
    });
}
