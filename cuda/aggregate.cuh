// Arguments and reads that all kernels of molgcn::aggregate share.
//
// Macros:
//   DTYPE      0 float, 1 double, 2 bf16, 3 half; sums are taken in `real`
//   VEC        adjacent channels of a thread
//   LANES      threads that share the channels of an edge, a power of 2 up to 32
//   WEIGHTS    0 none, 1 one for all channels of an edge, 2 one for each `channels_per_weight` of them, 3 one for each channel
//   REDUCE     0 sum, 1 mean, 2 max
//   BACKWARD   rows are sources, and they pull the gradients of their targets
#pragma once
#include "device.cuh"

#if DTYPE == 1
using real = double;
using element = double;
#elif DTYPE == 0
using real = float;
using element = float;
#else
using real = float;
using element = unsigned short;
#endif

#include "aggregate_structs.h"  // molgcn/ops/aggregate_cuda.py

constexpr bool is_max = REDUCE == 2, is_mean = REDUCE == 1;

template <int bytes>
struct Raw;
template <>
struct Raw<2> { using type = unsigned short; };
template <>
struct Raw<4> { using type = int; };
template <>
struct Raw<8> { using type = int2; };
template <>
struct Raw<16> { using type = int4; };

template <class T>
union Packed {
    typename Raw<VEC * sizeof(T)>::type raw;
    T each[VEC];
};

struct Values {
    real v[VEC];
};

__device__ __forceinline__ real widened(element x) {
#if DTYPE == 2
    return number(uint32(x) << 16);
#elif DTYPE == 3
    return unpack_half(uint32(x)).x;
#else
    return x;
#endif
}
__device__ __forceinline__ element narrowed(real x) {
#if DTYPE == 2
    return static_cast<element>(pack_bf16(x, 0.0f));
#elif DTYPE == 3
    return static_cast<element>(pack_half(x, 0.0f));
#else
    return x;
#endif
}
__device__ __forceinline__ real rounded(real x) { return widened(narrowed(x)); }

__device__ __forceinline__ Values widened(const Packed<element>& packed) {
    Values x;
#pragma unroll
    for (int k = 0; k < VEC; k++) x.v[k] = widened(packed.each[k]);
    return x;
}
__device__ __forceinline__ Values load(const element* at) {
    Packed<element> packed;
    packed.raw = __ldg(reinterpret_cast<const decltype(packed.raw)*>(at));
    return widened(packed);
}
// Loads values that are read once and need not stay in the cache.
__device__ __forceinline__ Values load_once(const element* at) {
    Packed<element> packed;
    packed.raw = __ldcs(reinterpret_cast<const decltype(packed.raw)*>(at));
    return widened(packed);
}
__device__ __forceinline__ Packed<element> narrowed(const Values& x) {
    Packed<element> packed;
#pragma unroll
    for (int k = 0; k < VEC; k++) packed.each[k] = narrowed(x.v[k]);
    return packed;
}
__device__ __forceinline__ void store(element* at, const Values& x) {
    const Packed<element> packed = narrowed(x);
    *reinterpret_cast<decltype(packed.raw)*>(at) = packed.raw;
}
__device__ __forceinline__ void store_once(element* at, const Values& x) {
    const Packed<element> packed = narrowed(x);
    __stcs(reinterpret_cast<decltype(packed.raw)*>(at), packed.raw);
}
#if DTYPE > 1
__device__ __forceinline__ Values load(const real* at) {
    Values x;
#pragma unroll
    for (int k = 0; k < VEC; k++) x.v[k] = __ldg(at + k);
    return x;
}
#endif

// The weights of an edge for channels from `column` on.
__device__ __forceinline__ Values weights_of(const Parameters& p, size_t edge, int column) {
    Values w;
#if WEIGHTS == 3
    w = load_once(p.weight + edge * p.num_columns + column);
#else
    const int each = p.channels_per_weight;
#pragma unroll
    for (int k = 0; k < VEC; k++) {
#if WEIGHTS == 0
        w.v[k] = 1;
#elif WEIGHTS == 1
        w.v[k] = widened(__ldg(p.weight + edge));
#else
        w.v[k] = widened(__ldg(p.weight + edge * (p.num_columns / each) + (column + k) / each));
#endif
    }
#endif
    return w;
}

__device__ __forceinline__ real shuffled(real x, int mask) {
#if DTYPE == 1
    union { double all; float half[2]; } both;
    both.all = x;
    both.half[0] = shuffle_xor(both.half[0], mask);
    both.half[1] = shuffle_xor(both.half[1], mask);
    return both.all;
#else
    return shuffle_xor(x, mask);
#endif
}

// The factor by which the mean scales the messages of a target.
__device__ __forceinline__ real share_of(const Parameters& p, int target) {
    const int degree = __ldg(p.degrees + target + 1) - __ldg(p.degrees + target);
    return real(1) / real(degree);
}
