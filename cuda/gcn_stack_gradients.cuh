// Gradients of weights, biases and norms: a block adds up those of its tiles in their order, then the grid those of its blocks.
#pragma once
#include "gcn_stack.cuh"

constexpr int sums = NORM == NORM_NONE ? 1 : 3;  // column sums of a layer: bias; norm bias, norm weight
constexpr int block_floats = 256;                // one 16 x 16 block of a weight gradient

// Where a block's sums lie: 16 x 16 blocks [in block q][out block p] of each layer as the lanes hold them, then column sums.
struct Sums {
    int first_blocks, layers;

    __device__ explicit Sums(const Parameters& p) : first_blocks((p.num_features + 15) / 16), layers(p.num_layers) {}
    __device__ __forceinline__ int in_blocks(int layer) const { return layer == 0 ? first_blocks : chunks; }
    __device__ __forceinline__ int block(int layer, int q, int p) const {
        return (((layer == 0 ? 0 : first_blocks + (layer - 1) * chunks) + q) * chunks + p) * block_floats;
    }
    __device__ __forceinline__ int columns(int layer, int warp, int kind) const {
        return block(layers, 0, 0) + ((layer * WARPS + warp) * sums + kind) * width;
    }
    __device__ __forceinline__ int size() const { return columns(layers, 0, 0); }
    // Turns: one a layer and block row, one a layer and warp
    __device__ __forceinline__ int turn(int layer, int q) const { return layer == 0 ? q : first_blocks + (layer - 1) * chunks + q; }
    __device__ __forceinline__ int column_turn(int layer, int warp) const { return turn(layers, 0) + layer * WARPS + warp; }
    __device__ __forceinline__ int turns() const { return column_turn(layers, 0); }
};

struct Order {  // of a block's tiles
    int* turn;
    int tile;

    __device__ __forceinline__ void enter(int index) const {
        while (load_acquire_block(turn + index) != tile) pause();
        __syncwarp();
    }
    __device__ __forceinline__ void leave(int index, int lane) const {
        __syncwarp();
        if (lane == 0) store_release_block(turn + index, tile + 1);
    }
};

struct Columns {
    float v[sums][chunks][4];
};

// 16 atoms' inputs of a layer, transposed: rows in = 16 q + 2 g + half, contracted atoms first + 4 e + t. Beyond the tile the last atom
// stands in: G is zero there.
__device__ __forceinline__ void read_inputs(float (&v)[2][4], const Parameters& p, const Group& group, const Tile& tile, int layer, int q, int first) {
    const int in = 16 * q + 2 * group.g, last = tile.num_nodes - 1;
    if (layer > 0) {
        const float* begin = p.inputs + at_node(p, layer - 1, tile.first_node) + in;
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float2 x = __ldg(reinterpret_cast<const float2*>(begin + min(first + 4 * e + group.t, last) * width));
            v[0][e] = x.x, v[1][e] = x.y;
        }
    } else {
        const float* begin = p.x + size_t(tile.first_node) * p.num_features + in;
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float* at = begin + min(first + 4 * e + group.t, last) * p.num_features;
            v[0][e] = in < p.num_features ? __ldg(at) : 0.0f;
            v[1][e] = in + 1 < p.num_features ? __ldg(at + 1) : 0.0f;
        }
    }
}

// Adds this tile's H^T G to the block's sums. Warp w has the rows of blocks q = w, w + WARPS, ...
template <bool large>
__device__ __forceinline__ void weight_gradient(const Parameters& p, const Group& group, const Tile& tile, const float* buffer, int layer,
                                                float* total, const Sums& at, const Order& order) {
    constexpr int most = chunks < 8 ? chunks : 8;  // blocks in registers
    for (int q = group.warp; q < at.in_blocks(layer); q += WARPS) {
        for (int first_block = 0; first_block < chunks; first_block += most) {
            float d[most][2][4] = {};
            float v[2][4];
            if (tile.num_nodes > 0) read_inputs(v, p, group, tile, layer, q, 0);
#pragma unroll 1
            for (int first = 0; first < tile.num_nodes; first += 16) {
                const matrix::Left a[1] = {matrix::left(v)};
                read_inputs(v, p, group, tile, layer, q, first + 16);  // the next ones, under way meanwhile
#pragma unroll
                for (int i = 0; i < most; i += wide) {
                    if (chunks % most != 0 && first_block + i >= chunks) break;
                    matrix::Right b[wide][2];
#pragma unroll
                    for (int k = 0; k < wide; k++) {
                        float w[2][4];
#pragma unroll
                        for (int e = 0; e < 4; e++) {
                            const bool there = !large || first + 4 * e + group.t < tile.num_nodes;
                            float2 x = make_float2(0.0f, 0.0f);
                            if (there) x = *reinterpret_cast<const float2*>(buffer + across_place<large>(group, first, e, first_block + i + k));
                            w[0][e] = x.x, w[1][e] = x.y;
                        }
                        b[k][0] = matrix::right(w[0]), b[k][1] = matrix::right(w[1]);
                    }
                    matrix::multiply_add<1, wide>([&](int, int k) -> float(&)[2][4] { return d[i + k]; }, a, b);
                }
            }
            if (first_block == 0) order.enter(at.turn(layer, q));
#pragma unroll
            for (int i = 0; i < most; i++)
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    if (chunks % most != 0 && first_block + i >= chunks) break;
                    float4* sum = reinterpret_cast<float4*>(total + at.block(layer, q, first_block + i)) + 32 * j + group.lane;
                    float4 value = four(d[i][j]);
                    if (order.tile > 0) add(value, *sum);
                    *sum = value;
                }
        }
        order.leave(at.turn(layer, q), group.lane);
    }
}

// Adds this tile's column sums to the block's
__device__ __forceinline__ void column_sums(const Columns& columns, const Group& group, int layer, float* total, const Sums& at, const Order& order) {
    order.enter(at.column_turn(layer, group.warp));
#pragma unroll
    for (int kind = 0; kind < sums; kind++)
#pragma unroll
        for (int c = 0; c < chunks; c++) {
            // Over the eight lanes of equal t, halving the columns twice: lane g ends with column e = 2 (g & 1) + (g >> 1 & 1)
            const float(&v)[4] = columns.v[kind][c];
            const bool odd = group.g & 1, second = group.g & 2;
            float first = odd ? v[2] : v[0], other = odd ? v[3] : v[1];
            first += shuffle_xor(odd ? v[0] : v[2], 4), other += shuffle_xor(odd ? v[1] : v[3], 4);
            float sum = second ? other : first;
            sum += shuffle_xor(second ? first : other, 8);
            sum += shuffle_xor(sum, 16);
            if (group.g < 4) {
                float* to = total + at.columns(layer, group.warp, kind) + 16 * c + 4 * group.t + 2 * (group.g & 1) + (group.g >> 1 & 1);
                *to = order.tile > 0 ? *to + sum : sum;
            }
        }
    order.leave(at.column_turn(layer, group.warp), group.lane);
}

// All blocks wait for each other; the last to leave makes it ready for another backward of the same forward.
__device__ __forceinline__ void grid_barrier(uint32* arrivals) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrivals, 1u);
        while (load_acquire_grid(arrivals) < gridDim.x) pause();
        if (atomicAdd(arrivals + 1, 1u) == gridDim.x - 1) {
            arrivals[0] = 0;
            arrivals[1] = 0;
        }
    }
    __syncthreads();
}

// Adds up the blocks' sums in their order and writes the gradients. Four lanes share one number: each adds every fourth block.
__device__ __forceinline__ void reduce(const Parameters& p, const Sums& at) {
    const int lane = threadIdx.x % 32, warps = gridDim.x * (blockDim.x / 32), size = at.size(), weights = at.columns(0, 0, 0);
    const int numbers = weights + p.num_layers * sums * width;
    for (int first = 8 * (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32); first < numbers; first += 8 * warps) {
        const int index = first + lane % 8;
        const bool is_weight = first < weights;
        const int row = (index - weights) / width, column = (index - weights) % width;  // of the column sums
        const float* begin = p.partial + (is_weight ? index : at.columns(row / sums, 0, row % sums) + column);
        float sum = 0.0f;
        for (int part = 0; part < (is_weight ? 1 : WARPS); part++)
#pragma unroll 8
            for (int block = lane / 8; block < gridDim.x; block += 4) sum += load_past_l1(begin + size_t(block) * size + part * sums * width);
        sum += shuffle_xor(sum, 8);
        sum += shuffle_xor(sum, 16);
        if (lane >= 8) continue;
        if (is_weight) {
            const int block = index / block_floats, in_block = block / chunks, place = index % block_floats;
            const int layer = in_block < at.first_blocks ? 0 : (in_block - at.first_blocks) / chunks + 1;
            const int q = layer == 0 ? in_block : (in_block - at.first_blocks) % chunks;
            const int holder = place % 128 / 4, i = place % 4, columns = layer == 0 ? p.num_features : HIDDEN;
            const int in = 16 * q + 2 * (holder / 4) + (i >> 1), out = 16 * (block % chunks) + 4 * (holder % 4) + place / 128 + 2 * (i & 1);
            if (in < columns && out < HIDDEN) p.layers[layer].grad_weight[size_t(out) * columns + in] = sum;
        } else if (column < HIDDEN) {
            const Layer& it = p.layers[row / sums];
            float* to = row % sums == 0 ? it.grad_bias : row % sums == 1 ? it.grad_norm_bias : it.grad_norm_weight;
            if (to != nullptr) to[column] = sum;
        }
    }
}
