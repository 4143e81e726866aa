// Vectors of MOLGCN_VECTOR_BYTES by the compiler's vector extensions: one source for SSE2, AVX2, AVX-512 and NEON.
//
// Everything that is compiled once per instruction set lives in namespace molgcn::MOLGCN_ISA, so that the linker never mixes two of them.
#pragma once

#include <cstddef>
#include <cstring>

namespace molgcn {
namespace MOLGCN_ISA {

template <typename T>
struct Simd {
    typedef T vec __attribute__((vector_size(MOLGCN_VECTOR_BYTES), may_alias));
    static constexpr int lanes = MOLGCN_VECTOR_BYTES / sizeof(T);
};

template <typename T>
using Vec = typename Simd<T>::vec;

template <typename T>
constexpr int lanes = Simd<T>::lanes;

// How many registers hold accumulators of a matrix product; the rest holds operands. There are 32 registers with AVX-512 and NEON, else 16.
#if MOLGCN_VECTOR_BYTES == 64 || defined(__aarch64__)
constexpr int accumulators = 24;
#else
constexpr int accumulators = 12;
#endif

template <typename T>
inline Vec<T> load(const T* p) {
    return *reinterpret_cast<const Vec<T>*>(p);
}

template <typename T>
inline void store(T* p, Vec<T> v) {
    *reinterpret_cast<Vec<T>*>(p) = v;
}

template <typename T>
inline Vec<T> splat(T value) {
    return value - Vec<T>{};  // x - 0 is x for every x, so that only the broadcast remains
}

// Returns max(v, 0) and keeps NaN, as torch's relu does.
template <typename T>
inline Vec<T> relu(Vec<T> v) {
    const Vec<T> zero{};
    return zero > v ? zero : v;
}

// Returns `v` where `gate` is positive, else 0.
template <typename T>
inline Vec<T> where_positive(Vec<T> gate, Vec<T> v) {
    const Vec<T> zero{};
    return gate > zero ? v : zero;
}

// Returns the sum of `size` numbers, a power of 2: halves are added to each other, since sums one after another would wait for each of them.
template <int size, typename T>
inline T sum_of_halves(const T* v) {
    if constexpr (size == 1) {
        return v[0];
    } else {
        T half[size / 2];
        for (int i = 0; i < size / 2; i++) half[i] = v[i] + v[i + size / 2];
        return sum_of_halves<size / 2>(half);
    }
}

template <typename T>
inline T sum(Vec<T> v) {
    return sum_of_halves<lanes<T>>(reinterpret_cast<const T*>(&v));
}

template <typename T>
constexpr int vectors(int channels) {
    return (channels + lanes<T> - 1) / lanes<T>;
}

}  // namespace MOLGCN_ISA
}  // namespace molgcn
