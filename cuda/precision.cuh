// The precisions of products on the tensor cores, and how their operands are made.
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
