// Numbers of the kernels on rows, float or double, four columns at a time.
//
// Macro: DOUBLE (numbers are double).
#pragma once
#include "device.cuh"

#if DOUBLE
using real = double;
__device__ __forceinline__ real multiply_add(real x, real y, real z) { return fma(x, y, z); }
__device__ __forceinline__ real root(real x) { return sqrt(x); }
__device__ __forceinline__ real reciprocal(real x) { return 1 / x; }
__device__ __forceinline__ real relu(real x) { return x < 0 ? real(0) : x; }  // keeps NaN, as that of device.cuh
#else
using real = float;
__device__ __forceinline__ real multiply_add(real x, real y, real z) { return fmaf(x, y, z); }
__device__ __forceinline__ real root(real x) { return sqrtf(x); }
#endif

struct alignas(16) Quad {
    real e[4] = {};
};

template <class Compute>  // does the same for every column
__device__ __forceinline__ Quad each(Compute compute) {
    Quad it;
#pragma unroll
    for (int e = 0; e < 4; e++) it.e[e] = compute(e);
    return it;
}
__device__ __forceinline__ Quad constant(real x) {
    return each([&](int) { return x; });
}
__device__ __forceinline__ Quad load(const real* at) { return *reinterpret_cast<const Quad*>(at); }
__device__ __forceinline__ void add(Quad& sum, const Quad& x) {
#pragma unroll
    for (int e = 0; e < 4; e++) sum.e[e] += x.e[e];
}
__device__ __forceinline__ void add(Quad& sum, real factor, const Quad& x) {
#pragma unroll
    for (int e = 0; e < 4; e++) sum.e[e] = multiply_add(factor, x.e[e], sum.e[e]);
}
