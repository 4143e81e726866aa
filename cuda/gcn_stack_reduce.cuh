// The gradients of all blocks, added up in the order of blocks by warps that have no tile left, layer by layer as the blocks hand them in.
#pragma once
#include "gcn_stack_gradients.cuh"

// A weight's row and column of number i of a lane's share of a block [in tile q][column tile j]
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

// A block's gradients of a layer are complete: by the group of its last tile. The column sums, added up over warps and the four lanes that
// share them, follow the weight gradients to global memory.
__device__ __forceinline__ void hand_in(const Parameters& p, const Group& group, const Sums& at, const float* total, int layer) {
    float* to = at.handed_in(p) + at.reduced_columns(layer);
    group.sync();
    for (int i = 32 * group.warp + group.lane; i < sums * width; i += 32 * WARPS) {
        const int kind = i / width, column = i % width, holder = 16 * (column % own / (own / 2)) + column % span / own;
        const float* from = total + at.columns(layer, 0, kind) + (32 * (column / span) + holder) * (own / 2) + column % (own / 2);
        float sum = 0.0f;
        for (int part = 0; part < 4 * WARPS; part++) sum += from[part / 4 * sums * column_floats + part % 4 * 2 * own];
        to[i] = sum;
    }
    __syncwarp();
    if (group.lane == 0) add_release_grid(p.arrivals + 2 + layer, 1u);
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

// Adds up the blocks' sums of 16 numbers from `first` on, and writes the gradients. Eight lanes share four adjacent numbers:
// each adds every eighth block.
__device__ __forceinline__ void add_up(const Parameters& p, const Sums& at, int first) {
    constexpr int at_once = 17;  // loads under way: one round for up to 136 blocks
    const int lane = threadIdx.x % 32, size = at.reduced_size(), blocks = gridDim.x, index = first + lane % 4 * 4;
    float sum[4] = {};
#pragma unroll 1
    for (int block = lane / 4; block < blocks; block += 8 * at_once) {
        float4 part[at_once];
#pragma unroll
        for (int i = 0; i < at_once; i++) part[i] = load4_past_l1(p.partial + size_t(min(block + 8 * i, blocks - 1)) * size + index);
#pragma unroll
        for (int i = 0; i < at_once; i++) {
            const bool there = block + 8 * i < blocks;  // no branch, which would bring each load back to its use
            sum[0] += there ? part[i].x : 0.0f, sum[1] += there ? part[i].y : 0.0f;
            sum[2] += there ? part[i].z : 0.0f, sum[3] += there ? part[i].w : 0.0f;
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        sum[i] += shuffle_xor(sum[i], 4);
        sum[i] += shuffle_xor(sum[i], 8);
        sum[i] += shuffle_xor(sum[i], 16);
        if (lane < 4) write_gradient(p, at, index + i, sum[i]);
    }
}

// Takes tasks of 16 numbers, from the last layer to the first, until none is left.
__device__ __forceinline__ void reduce(const Parameters& p, const Sums& at) {
    constexpr int column_tasks = sums * width / 16, each = width / 16 * column_tiles * block_floats / 16 + column_tasks;  // a layer but the first
    for (;;) {
        const int task = static_cast<int>(of_first_lane(threadIdx.x % 32 == 0 ? atomicAdd(p.arrivals + 1, 1u) : 0u));
        const int layer = max(p.num_layers - 1 - task / each, 0), number = task - (p.num_layers - 1 - layer) * each;
        const int weight_tasks = at.tiles(layer) * column_tiles * block_floats / 16;
        if (number >= weight_tasks + column_tasks) return;
        if (threadIdx.x % 32 == 0)
            while (load_acquire_grid(p.arrivals + 2 + layer) < gridDim.x * WARPS) pause();
        __syncwarp();
        add_up(p, at, number < weight_tasks ? at.block(layer, 0, 0) + 16 * number : at.reduced_columns(layer) + 16 * (number - weight_tasks));
    }
}

// The last block to leave makes all ready for another backward of the same forward.
__device__ __forceinline__ void leave(const Parameters& p) {
    __syncthreads();
    if (threadIdx.x > 0) return;
    __threadfence();
    if (atomicAdd(p.arrivals, 1u) < gridDim.x - 1) return;
    for (int i = 0; i < 2 + p.num_layers; i++) p.arrivals[i] = 0;
}
