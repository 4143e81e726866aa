// Products of a tile's rows and a weight on the tensor cores, both as halves (halves.cuh).
#pragma once
#include "halves.cuh"
#include "precision.cuh"
#include "tile_rows.cuh"

constexpr bool exact = PRECISION == PRECISION_FLOAT32;
constexpr int fragment_floats = 256;  // of 16 columns of rows and 16 of results

// Starts to copy a weight, as product_operands.cu made it, the scales of its columns and the bias into shared memory.
__device__ __forceinline__ void bring(const Instruction& it, float* to) {
    const int size = (fragment_floats * it.chunks_in + 16) * it.chunks_out;
    for (int i = 4 * threadIdx.x; i < size; i += 4 * threads) copy16(to + i, it.weight + i, true);
    for (int i = threadIdx.x; i < 16 * it.chunks_out; i += threads) {
        const bool there = it.bias != nullptr && i < it.width;
        copy4(to + size + i, there ? it.bias + i : it.weight, there);
    }
}

// sum[16 columns][odd columns][row g: columns 4 t + j, 4 t + 2 + j; row g + 8] += x W^T
__device__ __forceinline__ void multiply(float (&sum)[CHUNKS][2][4], const Features& x, const Scale (&scale)[2], const float* weight, int lane,
                                         int chunks_in, int chunks_out) {
    const float4* operands = reinterpret_cast<const float4*>(weight) + lane;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        if (k >= chunks_in) continue;
        uint32 high[4], low[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float up = scale[i % 2].up;
            split_halves(x.v[k][i % 2][i / 2 * 2] * up, x.v[k][i % 2][i / 2 * 2 + 1] * up, high[i], low[i]);
        }
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            if (c >= chunks_out) continue;
            const float4 w = operands[64 * (c * chunks_in + k)], rest = exact ? operands[64 * (c * chunks_in + k) + 32] : w;
#pragma unroll
            for (int pass = exact ? 0 : 2; pass < 3; pass++)  // small products first
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    const float4& b = pass == 0 ? rest : w;
                    const uint32 right[2] = {bits(at(b, j)), bits(at(b, 2 + j))};
                    mma_half(sum[c][j], pass == 1 ? low : high, right);
                }
        }
    }
}

// x = x W^T + b, with what `bring` has copied
__device__ __forceinline__ void multiply(Features& x, const Tile& tile, const Instruction& it, const float* weight) {
    float most[2] = {};
    x.each(tile, 16 * it.chunks_in, [&](int, int half, float(&v)[4], int) {
#pragma unroll
        for (int e = 0; e < 4; e++) most[half] = fmaxf(most[half], fabsf(v[e]));
    });
    Scale scale[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        most[half] = fmaxf(most[half], shuffle_xor(most[half], 1));
        scale[half] = Scale(bits(fmaxf(most[half], shuffle_xor(most[half], 2))));
    }
    float sum[CHUNKS][2][4] = {};
    multiply(sum, x, scale, weight, tile.lane, it.chunks_in, it.chunks_out);
    const float *downs = weight + fragment_floats * it.chunks_in * it.chunks_out, *biases = downs + 16 * it.chunks_out;
    x.zero();
    x.each(tile, 16 * it.chunks_out, [&](int c, int half, float(&v)[4], int column) {
        const float4 down = *reinterpret_cast<const float4*>(downs + column), bias = *reinterpret_cast<const float4*>(biases + column);
#pragma unroll
        for (int e = 0; e < 4; e++) v[e] = fmaf(sum[c][e % 2][2 * half + e / 2], scale[half].down * at(down, e), at(bias, e));
    });
}
