// Products of 16 x 16 blocks on the tensor cores for weight gradients, one block for each warp.
//
// Lane 4 g + t (g < 8, t < 4) holds rows g and g + 8 of every 16 x 16 block, and in each row the four columns 4 t .. 4 t + 3. The order of
// the contracted index is free as long as both operands agree.
//
// In float32, x = high + low, both bf16, and x y = high high + high low + low high. This keeps float32's range, and 16 bits of each number,
// which suffice where no later layer sees the result.
#pragma once
#include "device.cuh"

#define PRECISION_FLOAT32 0
#define PRECISION_TF32 1
#define PRECISION_BF16 2

// Splits two numbers into bf16 parts and what those leave.
__device__ __forceinline__ void split_pair(float x, float y, uint32& high, uint32& low) {
    high = pack_bf16(x, y);
    low = pack_bf16(x - number(high << 16), y - number(high & 0xffff0000u));
}

// Returns an operand of a TF32 product, rounded to nearest; the low 13 bits are ignored. CUDA's own NaN has all bits set, so that adding to
// it would make it -0.
__device__ __forceinline__ uint32 rounded_tf32(uint32 x) {
    return round_tf32(rounds_tf32 ? x : static_cast<uint32>(min(static_cast<int>(x), 0x7fffe000)));
}

namespace matrix {

constexpr int parts = PRECISION == PRECISION_FLOAT32 ? 2 : 1;  // high, low
constexpr int steps = PRECISION == PRECISION_TF32 ? 2 : 1;     // instructions that contract 16 values

// Packs four contracted numbers into words, two for each step.
__device__ __forceinline__ void words(const float (&v)[4], uint32 (&part)[parts][steps][2]) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if constexpr (PRECISION == PRECISION_TF32) {
            part[0][0][i] = rounded_tf32(bits(v[i])), part[0][steps - 1][i] = rounded_tf32(bits(v[2 + i]));
        } else {
            uint32 low;
            split_pair(v[2 * i], v[2 * i + 1], part[0][0][i], low);
            if constexpr (parts == 2) part[parts - 1][0][i] = low;
        }
    }
}

struct Left {  // rows g and g + 8
    uint32 part[parts][steps][4];

    __device__ __forceinline__ Left() {}
    __device__ __forceinline__ explicit Left(const float (&v)[2][4]) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32 of_row[parts][steps][2];
            words(v[half], of_row);
#pragma unroll
            for (int i = 0; i < parts * steps * 2; i++) (&part[0][0][0])[i / 2 * 4 + i % 2 * 2 + half] = (&of_row[0][0][0])[i];
        }
    }
};
struct Right {  // column g
    uint32 part[parts][steps][2];

    __device__ __forceinline__ Right() {}
    __device__ __forceinline__ explicit Right(const float (&v)[4]) { words(v, part); }
};

// d[m][p][j] += a[m] b[p][j] for M x P blocks of 16 x 16; d(m, p) is a block. Small products come first, and independent ones follow each
// other.
template <int M, int P, class Sums>
__device__ __forceinline__ void multiply_add(Sums d, const Left (&a)[M], const Right (&b)[P][2]) {
#pragma unroll
    for (int pass = parts == 2 ? 0 : 2; pass < 3; pass++)
#pragma unroll
        for (int step = 0; step < steps; step++)
#pragma unroll
            for (int p = 0; p < P; p++)
#pragma unroll
                for (int j = 0; j < 2; j++)
#pragma unroll
                    for (int m = 0; m < M; m++) {
                        const auto& left = a[m].part[pass == 0 ? parts - 1 : 0][step];
                        const auto& right = b[p][j].part[pass == 1 ? parts - 1 : 0][step];
                        if constexpr (PRECISION == PRECISION_TF32)
                            mma_tf32(d(m, p)[j], left, right);
                        else
                            mma_bf16(d(m, p)[j], left, right);
                    }
}

}  // namespace matrix
