// Products of 16 x 16 blocks on the tensor cores for gradients of weights, one block for each warp.
//
// Lane 4 g + t (g < 8, t < 4) holds rows g and g + 8 of every 16 x 16 block, and in each row the four columns 4 t .. 4 t + 3. The order of
// the contracted index is free as long as both operands agree.
//
// In float32, x = high + low, high in TF32, and x y = high high + low y + x low, the last two in bf16. This keeps float32's range, is
// within 6e-7 of a gradient, and takes four instructions where three products in TF32 take six.
#pragma once
#include "precision.cuh"

constexpr bool exact = PRECISION == PRECISION_FLOAT32, in_tf32 = PRECISION != PRECISION_BF16, in_bf16 = PRECISION != PRECISION_TF32;

// Four contracted numbers. TF32 sees the high part: rounded with `to_nearest`, else the number without its last 13 bits.
struct Operands {
    uint32 high[2][2];   // of each of two instructions
    uint32 small[2][2];  // in bf16: what TF32 leaves of the numbers, and they themselves

    __device__ __forceinline__ Operands() {}
    __device__ __forceinline__ Operands(const float (&v)[4], bool to_nearest) {
        float rest[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32 x = bits(v[i]), rounded = !exact ? rounded_tf32(x) : to_nearest ? round_tf32(x) : x;  // a NaN stays in the low part
            high[i / 2][i % 2] = rounded;
            rest[i] = v[i] - number(to_nearest && rounds_tf32 ? rounded : rounded & 0xffffe000u);
        }
#pragma unroll
        for (int i = 0; i < 2; i++) small[0][i] = pack_bf16(rest[2 * i], rest[2 * i + 1]), small[1][i] = pack_bf16(v[2 * i], v[2 * i + 1]);
    }
};
// Rounding one of the two to nearest leaves the product that is left out, low low, without a sign of its own.
struct Right : Operands {  // column g
    __device__ __forceinline__ Right() {}
    __device__ __forceinline__ explicit Right(const float (&v)[4]) : Operands(v, true) {}
};
struct Left {  // rows g and g + 8
    Operands of[2];

    __device__ __forceinline__ explicit Left(const float (&v)[2][4]) : of{Operands(v[0], false), Operands(v[1], false)} {}
};

// sum(n, j) += a b[n][j]. Small products come first, and independent ones follow each other.
template <int N, class Sums>
__device__ __forceinline__ void multiply_add(Sums sum, const Left& a, const Right (&b)[N][2]) {
    const auto &x = a.of[0], &y = a.of[1];
#pragma unroll
    for (int pass = in_bf16 ? exact ? 0 : 1 : 2; pass < (in_tf32 ? 4 : 2); pass++) {
        const int k = pass % 2;
        const auto &mine = pass < 2 ? x.small[k] : x.high[k], &other = pass < 2 ? y.small[k] : y.high[k];
        const uint32 left[4] = {mine[0], other[0], mine[1], other[1]};
#pragma unroll
        for (int j = 0; j < 2; j++)
#pragma unroll
            for (int n = 0; n < N; n++) {
                if (pass < 2)
                    mma_bf16(sum(n, j), left, b[n][j].small[exact ? 1 - k : 1]);
                else
                    mma_tf32(sum(n, j), left, b[n][j].high[k]);
            }
    }
}
