// How a block takes molecules through the layers of a head.
//
// Their states lie in shared memory: a plane for each layer's input, and one for the predictions' derivatives. Weights come in chunks, the
// next one while a chunk is multiplied. A column of ones follows a plane's last column, and the bias follows a weight's. Products then add
// the bias, and give its gradient.
//
// Macros: LAYERS, PLANES (LAYERS + 1).
#pragma once
#include "loss.cuh"
#include "shared_product.cuh"
#include "head_layers_structs.h"  // molgcn/ops/head_layers_cuda.py

__device__ const float one = 1.0f;

// Starts to copy a matrix to shared memory, and zeros to the rows that follow it, up to `all_rows`. A warp copies a row.
__device__ __forceinline__ void copy_rows(float* to, int stride, const float* from, int from_stride, int columns, int rows, int all_rows) {
    const bool whole = (columns | from_stride) % 4 == 0 && reinterpret_cast<size_t>(from) % 16 == 0;
    const int lane = threadIdx.x % 32;
#pragma unroll 1
    for (int row = threadIdx.x / 32; row < all_rows; row += blockDim.x / 32) {
        const bool there = row < rows;
        const float* source = there ? from + static_cast<long long>(row) * from_stride : from;
        float* target = to + row * stride;
        if (whole)
            for (int column = 4 * lane; column < columns; column += 128) copy16(target + column, source + column, there);
        else
            for (int column = lane; column < columns; column += 32) copy4(target + column, source + column, there);
    }
}
// Starts to copy the column that follows a matrix's last, and zeros behind it, up to whole quads.
__device__ __forceinline__ void copy_last(float* to, int stride, const float* from, int step, int columns, int rows, int all_rows) {
    const int end = 4 * quads_of(columns + 1);
#pragma unroll 1
    for (int row = threadIdx.x; row < all_rows; row += blockDim.x) {
        const bool there = row < rows;
        copy4(to + row * stride + columns, there ? from + row * step : from, there);
        for (int column = columns + 1; column < end; column++) to[row * stride + column] = 0.0f;
    }
}

// Some of the molecules, which a block takes at a time.
struct Rows {
    int first, count;
};
// Calls visit(rows) for the block's share of the molecules, at least once.
template <class Visit>
__device__ __forceinline__ void each_rows(const Parameters& p, const Visit& visit) {
    int first = blockIdx.x * p.rows;
    do {
        visit(Rows{first, min(p.rows, p.num_graphs - first)});
        __syncthreads();
        first += gridDim.x * p.rows;
    } while (first < p.num_graphs);
}

struct Memory {
    const Parameters& p;
    float* begin;

    __device__ __forceinline__ float* plane(int i) const { return begin + p.rows * p.planes[i].begin; }
    __device__ __forceinline__ float* chunk(int buffer) const { return begin + p.rows * p.num_columns + buffer * p.chunk_size; }
    __device__ __forceinline__ void copy_ones(int i, const Rows& rows) const {
        copy_last(plane(i), p.planes[i].stride, &one, 0, p.planes[i].width, rows.count, p.rows);
    }
    __device__ __forceinline__ void copy_plane(int i, const Rows& rows) const {
        const Plane& it = p.planes[i];
        copy_rows(plane(i), it.stride, it.rows + static_cast<long long>(rows.first) * it.width, it.width, it.width, rows.count, p.rows);
        copy_ones(i, rows);
    }
};

// Some quads of a layer's outputs (forward) or inputs (backward), and their weights.
template <bool FORWARD>
struct Chunk {
    int layer, first, quads = 0, all = 0;

    __device__ __forceinline__ Chunk(const Parameters& p, int layer, int first = 0) : layer(layer), first(first) {
        if (layer < 0 || layer >= LAYERS) return;
        all = quads_of(p.planes[layer + FORWARD].width), quads = min(p.layers[layer].chunk, all - first);
    }
    __device__ __forceinline__ bool exists() const { return quads > 0; }
    __device__ __forceinline__ Chunk next(const Parameters& p) const {
        return first + quads < all ? Chunk(p, layer, first + quads) : Chunk(p, layer + (FORWARD ? 1 : -1));
    }
};
// Calls start(chunk, its memory) and then multiply(chunk, its memory) for all chunks of all layers. Copies are under way when it is called.
template <bool FORWARD, class Start, class Multiply>
__device__ __forceinline__ void each_chunk(const Memory& memory, const Start& start, const Multiply& multiply) {
    using Some = Chunk<FORWARD>;
    int current = 0;
    Some now(memory.p, FORWARD ? 0 : LAYERS - 1);
    start(now, memory.chunk(current));
    while (now.exists()) {
        const Some next = now.next(memory.p);
        wait_for_copies();
        __syncthreads();
        if (next.exists()) start(next, memory.chunk(current ^ 1));
        multiply(now, memory.chunk(current));
        now = next, current ^= 1;
    }
}
