// Products of 16 x 16 blocks on the tensor cores, one warp each, in float32 accuracy, TF32 or bf16.
//
// Lane 4 g + t (g < 8, t < 4) holds of every 16 x 16 block the rows g and g + 8, and in each the four columns 4 t .. 4 t + 3: the order of
// the contracted index is free as long as both operands agree, and with this one results of a product are operands of the next one and all
// accesses to memory are 16 or 8 bytes wide.
//
// float32 accuracy: x = high + low, both TF32, and x y = high high + high low + low high, with float32's range and no scaling.
#pragma once
#include "device.cuh"

#define PRECISION_FLOAT32 0
#define PRECISION_TF32 1
#define PRECISION_BF16 2

namespace matrix {

constexpr int parts = PRECISION == PRECISION_FLOAT32 ? 2 : 1;  // high, low
constexpr int steps = PRECISION == PRECISION_BF16 ? 1 : 2;     // instructions that contract 16 values

struct Left {
    uint32 part[parts][steps][4];
};
struct Right {
    uint32 part[parts][steps][2];
};

__device__ __forceinline__ void split(float x, uint32& high, uint32& low) {
    high = (bits(x) + 0x1000u) & 0xffffe000u;  // to nearest
    low = bits(x - number(high));
}

// v[row half][contracted index]: rows g and g + 8
__device__ __forceinline__ Left left(const float (&v)[2][4]) {
    Left a;
    if constexpr (PRECISION == PRECISION_BF16) {
        for (int half = 0; half < 2; half++) {
            a.part[0][0][half] = pack_bf16(v[half][0], v[half][1]);
            a.part[0][0][2 + half] = pack_bf16(v[half][2], v[half][3]);
        }
    } else {
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                uint32 high, low;
                split(v[half][e], high, low);
                a.part[0][e >> 1][half + 2 * (e & 1)] = high;
                if constexpr (parts == 2) a.part[parts - 1][e >> 1][half + 2 * (e & 1)] = low;
            }
    }
    return a;
}

__device__ __forceinline__ Left left(const float4 (&rows)[2]) {
    const float v[2][4] = {{rows[0].x, rows[0].y, rows[0].z, rows[0].w}, {rows[1].x, rows[1].y, rows[1].z, rows[1].w}};
    return left(v);
}

// v[contracted index] of column g
__device__ __forceinline__ Right right(const float (&v)[4]) {
    Right b;
    if constexpr (PRECISION == PRECISION_BF16) {
        b.part[0][0][0] = pack_bf16(v[0], v[1]);
        b.part[0][0][1] = pack_bf16(v[2], v[3]);
    } else {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            uint32 high, low;
            split(v[e], high, low);
            b.part[0][e >> 1][e & 1] = high;
            if constexpr (parts == 2) b.part[parts - 1][e >> 1][e & 1] = low;
        }
    }
    return b;
}

__device__ __forceinline__ void multiply(float (&d)[4], const uint32 (&a)[4], const uint32 (&b)[2]) {
    if constexpr (PRECISION == PRECISION_BF16)
        mma_bf16(d, a, b);
    else
        mma_tf32(d, a, b);
}

// d[m][p][j] += a[m] b[p][j] for M x P blocks of 16 x 16; small products first, independent ones next to each other. d(m, p) is a block.
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
                    for (int m = 0; m < M; m++)
                        multiply(d(m, p)[j], a[m].part[pass == 0 ? parts - 1 : 0][step], b[p][j].part[pass == 1 ? parts - 1 : 0][step]);
}

}  // namespace matrix
