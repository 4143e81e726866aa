// How a block takes molecules through the layers of a head. Threads side by side, a team, have a molecule each, and the teams share what is
// computed of them.
//
// States lie in shared memory, a plane for each layer's input and one for the predictions' derivatives; in backward, planes for the gradients
// of hidden states follow. Weights come in chunks, the next one while a chunk is multiplied. A column of ones follows a plane's last column,
// and the bias follows a weight's. Products then add the bias, and give its gradient.
//
// Macros: LAYERS, PLANES (LAYERS + 1).
#pragma once
#include "loss.cuh"
#include "quads.cuh"
#include "head_layers_structs.h"  // molgcn/ops/head_layers_cuda.py

__device__ __forceinline__ constexpr int quads_of(int count) { return (count + 3) / 4; }

// Starts to copy a matrix to shared memory, and zeros to the rows that follow it, up to `all_rows`. A warp copies a row.
__device__ __forceinline__ void copy_rows(float* to, int stride, const float* from, int from_stride, int columns, int rows, int all_rows) {
    const bool whole = (columns | from_stride) % 4 == 0 && reinterpret_cast<size_t>(from) % 16 == 0;
    const int lane = threadIdx.x % 32;
#pragma unroll 1
    for (int row = threadIdx.x / 32; row < all_rows; row += blockDim.x / 32) {
        const bool there = row < rows;
        const float* source = there ? from + static_cast<long long>(row) * from_stride : from;
        float* target = to + row * stride;
        const int step = whole ? 4 : 1;
#pragma unroll 1
        for (int column = step * lane; column < columns; column += 32 * step) {
            if (whole)
                copy16(target + column, source + column, there);
            else
                copy4(target + column, source + column, there);
        }
    }
}
// Starts to copy a vector to the column behind a matrix's last, and zeros behind it, up to whole quads.
__device__ __forceinline__ void copy_last(float* to, int stride, const float* from, int columns, int rows, int all_rows) {
#pragma unroll 1
    for (int row = threadIdx.x; row < all_rows; row += blockDim.x) {
        copy4(to + row * stride + columns, row < rows ? from + row : from, row < rows);
#pragma unroll 1
        for (int column = columns + 1; column % 4 != 0; column++) to[row * stride + column] = 0.0f;
    }
}

// A thread's molecule among those that its block takes at a time, and its team.
struct Thread {
    int row, team, teams;

    __device__ __forceinline__ explicit Thread(const Parameters& p)
        : row(threadIdx.x % p.rows), team(threadIdx.x / p.rows), teams(blockDim.x / p.rows) {
        if (team == teams) team = 1 << 24;  // the threads that are left over have nothing to do
    }
};

// Some of the molecules, which a block takes at a time.
struct Rows {
    int first, count;
};
// Calls visit(rows, whether they are the first) for the block's share of the molecules, at least once.
template <class Visit>
__device__ __forceinline__ void each_rows(const Parameters& p, const Visit& visit) {
    int first = blockIdx.x * p.rows;
    do {
        visit(Rows{first, min(p.rows, p.num_graphs - first)}, first == blockIdx.x * p.rows);
        __syncthreads();
        first += gridDim.x * p.rows;
    } while (first < p.num_graphs);
}

struct Memory {
    const Parameters& p;
    float* begin;

    __device__ __forceinline__ float* plane(int i) const { return begin + p.rows * p.planes[i].begin; }
    __device__ __forceinline__ float* gradient(int i) const { return begin + p.rows * p.planes[i].gradient_begin; }
    __device__ __forceinline__ float* chunk(int buffer) const { return begin + p.rows * p.num_columns + buffer * p.chunk_size; }
    __device__ __forceinline__ void write_ones(int i) const {
        const int width = p.planes[i].width;
#pragma unroll 1
        for (int row = threadIdx.x; row < p.rows; row += blockDim.x)
#pragma unroll 1
            for (int column = width; column < 4 * quads_of(width + 1); column++) plane(i)[row * p.planes[i].stride + column] = column == width ? 1.0f : 0.0f;
    }
    __device__ __forceinline__ void copy_plane(int i, const Rows& rows) const {
        const Plane& it = p.planes[i];
        copy_rows(plane(i), it.stride, it.rows + static_cast<long long>(rows.first) * it.width, it.width, it.width, rows.count, p.rows);
        write_ones(i);
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
    static __device__ __forceinline__ Chunk begin(const Parameters& p) { return Chunk(p, FORWARD ? 0 : LAYERS - 1); }
    __device__ __forceinline__ bool exists() const { return quads > 0; }
    __device__ __forceinline__ Chunk next(const Parameters& p) const {
        return first + quads < all ? Chunk(p, layer, first + quads) : Chunk(p, layer + (FORWARD ? 1 : -1));
    }
};
// Calls start(chunk, its memory) and then multiply(chunk, its memory) for all chunks of all layers but for the first start: its copies, and
// others, are under way when it is called.
template <bool FORWARD, class Start, class Multiply>
__device__ __forceinline__ void each_chunk(const Memory& memory, const Start& start, const Multiply& multiply) {
    using Some = Chunk<FORWARD>;
    int current = 0;
    Some now = Some::begin(memory.p);
    while (now.exists()) {
        const Some next = now.next(memory.p);
        wait_for_copies();
        __syncthreads();
        if (next.exists()) start(next, memory.chunk(current ^ 1));
        multiply(now, memory.chunk(current));
        now = next, current ^= 1;
    }
}
