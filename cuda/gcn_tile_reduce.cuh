// The end of backward: all blocks wait for each other, then add up their sums of gradients in the order of the blocks.
#pragma once
#include "gcn_tile_gradients.cuh"

// Waits until all blocks have arrived.
__device__ __forceinline__ void grid_barrier(uint32* arrivals) {
    __syncthreads();
    if (threadIdx.x == 0) {
        add_release_grid(arrivals, 1u);
        while (load_acquire_grid(arrivals) < gridDim.x) pause();
    }
    __syncthreads();
}
// Resets the barrier once all blocks have passed it, so that another backward of the same forward can use it. The last block to call this
// does so.
__device__ __forceinline__ void leave_barrier(uint32* arrivals) {
    if (threadIdx.x > 0 || atomicAdd(arrivals + 1, 1u) < gridDim.x - 1) return;
    arrivals[0] = 0;
    arrivals[1] = 0;
}

// The row and column in the weight of number i of a lane's share of a block [in tile q][column tile j].
struct Entry {
    int in, out;

    __device__ __forceinline__ Entry(int q, int j, int lane, int i) {
        const int g = lane / 4, n = 2 * (lane % 4) + (i & 1), half = i >> 1;
        if (packed) {
            in = 16 * q + g + 8 * half, out = 8 * j + n;
        } else {
            in = q / in_tiles * in_tiles * 16 + in_columns * g + 2 * (q % in_tiles) + half;
            out = j / side * side * 8 + side * n + j % side;
        }
    }
};

// Adds a block's column sums up over its warps and the four lanes that share them, and writes them to global memory.
__device__ __forceinline__ void hand_in_columns(const Parameters& p, const Sums& at, const float* total) {
    float* to = at.handed_in(p);
    for (int i = threadIdx.x; i < p.num_layers * sums * width; i += blockDim.x) {
        const int row = i / width, column = i % width, holder = 16 * (column % own / (own / 2)) + column % span / own;
        const float* from = total + at.columns(row / sums, 0, row % sums) + (32 * (column / span) + holder) * (own / 2) + column % (own / 2);
        float sum = 0.0f;
        for (int part = 0; part < 4 * column_warps; part++) sum += from[part / 4 * sums * column_floats + part % 4 * 2 * own];
        to[at.weights() + i] = sum;
    }
}

__device__ __forceinline__ void write_gradient(const Parameters& p, const Sums& at, int index, float sum) {
    if (index < at.weights()) {
        const int block = index / block_floats, tile = block / column_tiles;
        const int layer = tile < at.first_tiles ? 0 : (tile - at.first_tiles) / (width / 16) + 1, columns = layer == 0 ? p.num_features : HIDDEN;
        const Entry entry(tile - at.tile(layer, 0), block % column_tiles, index % block_floats / 4, index % 4);
        if (entry.in < columns && entry.out < HIDDEN) p.layers[layer].grad_weight[size_t(entry.out) * columns + entry.in] = sum;
    } else {
        const int row = (index - at.weights()) / width, column = (index - at.weights()) % width;
        const Layer& it = p.layers[row / sums];
        float* to = row % sums == 0 ? it.grad_bias : row % sums == 1 ? it.grad_norm_bias : it.grad_norm_weight;
        if (to != nullptr && column < HIDDEN) to[column] = sum;
    }
}

// Adds up the blocks' sums of each number in order and writes the gradients. A block without a tile has none: a plan's grid is for more
// tiles than a batch may have. A lane has four adjacent numbers. `share` lanes share them, and each adds every share-th block.
__device__ __forceinline__ void reduce(const Parameters& p, const Sums& at) {
    constexpr int at_once = 17;  // loads under way at once: one round for up to 34 blocks, two for 136
    const int blocks = min(int(gridDim.x), p.num_tiles), share = blocks > 2 * at_once ? 4 : 2, apart = 32 / share, numbers = 4 * apart;
    const int lane = threadIdx.x % 32, size = at.reduced_size(), step = numbers * gridDim.x * (blockDim.x / 32);
    for (int first = numbers * (blockIdx.x + gridDim.x * (threadIdx.x / 32)); first < size; first += step) {
        const int index = min(first + lane % apart * 4, size - 4);
        float sum[4] = {};
#pragma unroll 1
        for (int block = lane / apart; block < blocks; block += share * at_once) {
            float4 part[at_once];
#pragma unroll
            for (int i = 0; i < at_once; i++) part[i] = load4_past_l1(p.partial + size_t(min(block + share * i, blocks - 1)) * size + index);
#pragma unroll
            for (int i = 0; i < at_once; i++) {
                const bool there = block + share * i < blocks;  // no branch, which would move each load to its use
                sum[0] += there ? part[i].x : 0.0f, sum[1] += there ? part[i].y : 0.0f;
                sum[2] += there ? part[i].z : 0.0f, sum[3] += there ? part[i].w : 0.0f;
            }
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (share == 4) sum[i] += shuffle_xor(sum[i], 8);
            sum[i] += shuffle_xor(sum[i], 16);
            if (lane < apart && first + 4 * lane < size) write_gradient(p, at, index + i, sum[i]);
        }
    }
}
