// Products of 16 x 16 blocks on the tensor cores for gradients of weights, one warp each; lanes hold blocks as in matrix.cuh.
//
// float32 accuracy: x = high + low, high in TF32, and x y = high high + low y + x low, the last two in bf16: float32's range, 6e-7 of a gradient, and
// four instructions where three products in TF32 are six. The parts in bf16 are made once, for all warps.
#pragma once
#include "matrix.cuh"
#include "quads.cuh"

constexpr bool exact = PRECISION == PRECISION_FLOAT32, in_tf32 = PRECISION != PRECISION_BF16, in_bf16 = PRECISION != PRECISION_TF32;

// Four numbers that are contracted: as they are, of which TF32 sees the high part, and in bf16 what that leaves of them, and they themselves
struct Operand {
    float v[4];
    float4 small;
};
__device__ __forceinline__ float4 small_parts(const float (&v)[4]) {
    float rest[4];
#pragma unroll
    for (int i = 0; i < 4; i++) rest[i] = v[i] - number(bits(v[i]) & 0xffffe000u);
    return make_float4(number(pack_bf16(rest[0], rest[1])), number(pack_bf16(rest[2], rest[3])), number(pack_bf16(v[0], v[1])),
                       number(pack_bf16(v[2], v[3])));
}
__device__ __forceinline__ uint32 high_part(float x) { return exact ? bits(x) : rounded_tf32(bits(x)); }

// sum(m, j) += a[m] b[j] for rows g and g + 8 of a[m], column g of b[j]; small products first, independent ones next to each other
template <int N, class Sums>
__device__ __forceinline__ void multiply_add(Sums sum, const Operand (&a)[N][2], const Operand (&b)[2]) {
#pragma unroll
    for (int pass = in_bf16 ? exact ? 0 : 1 : 2; pass < (in_tf32 ? 4 : 2); pass++)
#pragma unroll
        for (int j = 0; j < 2; j++)
#pragma unroll
            for (int m = 0; m < N; m++) {
                const Operand &x = a[m][0], &y = a[m][1], &z = b[j];
                const int k = 2 * (pass % 2), other = exact ? 2 - k : 2;
                if (pass < 2) {
                    const uint32 left[4] = {bits(at(x.small, k)), bits(at(y.small, k)), bits(at(x.small, k + 1)), bits(at(y.small, k + 1))};
                    const uint32 right[2] = {bits(at(z.small, other)), bits(at(z.small, other + 1))};
                    mma_bf16(sum(m, j), left, right);
                } else {
                    const uint32 left[4] = {high_part(x.v[k]), high_part(y.v[k]), high_part(x.v[k + 1]), high_part(y.v[k + 1])};
                    const uint32 right[2] = {high_part(z.v[k]), high_part(z.v[k + 1])};
                    mma_tf32(sum(m, j), left, right);
                }
            }
}
