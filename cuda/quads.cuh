// Rows of floats, four columns at a time.
#pragma once
#include "device.cuh"

__device__ __forceinline__ float4 nothing() { return make_float4(0.0f, 0.0f, 0.0f, 0.0f); }
__device__ __forceinline__ float4 load4(const float* at) { return __ldg(reinterpret_cast<const float4*>(at)); }
__device__ __forceinline__ float2& two(float* at) { return *reinterpret_cast<float2*>(at); }
__device__ __forceinline__ float4& four(float* at) { return *reinterpret_cast<float4*>(at); }
__device__ __forceinline__ void add(float4& sum, const float4& x) { sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w; }
__device__ __forceinline__ void add(float4& sum, float factor, const float4& x) {
    sum.x = fmaf(factor, x.x, sum.x), sum.y = fmaf(factor, x.y, sum.y), sum.z = fmaf(factor, x.z, sum.z), sum.w = fmaf(factor, x.w, sum.w);
}
__device__ __forceinline__ float& at(float4& x, int e) { return e == 0 ? x.x : e == 1 ? x.y : e == 2 ? x.z : x.w; }
__device__ __forceinline__ float at(const float4& x, int e) { return e == 0 ? x.x : e == 1 ? x.y : e == 2 ? x.z : x.w; }

// Returns how many rows are not padding: for atoms what `atoms` says, for bonds what these atoms have in `bonds`, their rowptr. Without
// `atoms` all rows count.
__device__ __forceinline__ int num_real(const int* atoms, const int* bonds, int num_rows) {
    if (atoms == nullptr) return num_rows;
    const int count = __ldg(atoms);
    return bonds == nullptr ? count : __ldg(bonds + count);
}
