// Products in float32 accuracy from fp16 halves. They are twice as fast as from TF32 and take as few bytes as float32.
//
// An atom's row and a weight's column are scaled by powers of two to below 2^15. Then x = high + low keeps 22 bits, and x y = high high +
// high low + low high. No result depends on other atoms or columns, and float32's range stays.
#pragma once
#include "device.cuh"

// Powers of two: `up` brings numbers below 2^15, `down` brings them back. `most` has the bits of the largest number.
struct Scale {
    float down = 1.0f, up = 1.0f;

    __device__ __forceinline__ Scale() {}
    __device__ __forceinline__ explicit Scale(uint32 most) {
        const uint32 exponent = max(most >> 23, 15u);
        down = number((exponent - 14) << 23), up = number((268 - exponent) << 23);
    }
};

// Splits two numbers into halves and what those leave.
__device__ __forceinline__ void split_halves(float x, float y, uint32& high, uint32& low) {
    high = pack_half(x, y);
    const float2 rounded = unpack_half(high);
    low = pack_half(x - rounded.x, y - rounded.y);
}
// Returns four scaled numbers of a row as halves, then what those leave.
__device__ __forceinline__ float4 operand(const float4& x, float up) {
    uint32 high[2], low[2];
    split_halves(x.x * up, x.y * up, high[0], low[0]);
    split_halves(x.z * up, x.w * up, high[1], low[1]);
    return make_float4(number(high[0]), number(high[1]), number(low[0]), number(low[1]));
}
