// Vectors of MOLGCN_VECTOR_BYTES by the compiler's vector extensions: one source for SSE2, AVX2, AVX-512 and NEON.
//
// Everything that is compiled once per instruction set lives in namespace molgcn::MOLGCN_ISA, so that the linker never mixes two of them.
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

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

// Returns the sum of a vector of `size` numbers, a power of 2. Halves are added to each other as vectors of half the length.
template <typename T, int size, typename Numbers>
inline T sum_of_halves(Numbers v) {
    if constexpr (size * sizeof(T) <= 16) {
        T sum = v[0] + v[size / 2];
        for (int i = 1; i < size / 2; i++) sum += v[i] + v[i + size / 2];
        return sum;
    } else {
        typedef T Half __attribute__((vector_size(size * sizeof(T) / 2)));
        Half low, high;
        std::memcpy(&low, &v, sizeof low);
        std::memcpy(&high, reinterpret_cast<const char*>(&v) + sizeof low, sizeof high);
        return sum_of_halves<T, size / 2>(low + high);
    }
}

template <typename T>
inline T sum(Vec<T> v) {
    return sum_of_halves<T, lanes<T>>(v);
}

// Returns 1 / v, a few units in the last place from exact. AVX-512 divides slower than it approximates.
template <typename T>
inline Vec<T> reciprocal(Vec<T> v) {
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 4) {
        const Vec<T> r = Vec<T>(_mm512_rcp14_ps(__m512(v)));
        return r + r * (1 - v * r);
    }
#endif
    return T(1) / v;
}

template <typename T>
constexpr int vectors(int channels) {
    return (channels + lanes<T> - 1) / lanes<T>;
}

// Calls run(constant P, column) for columns in whole vectors, P of them at a time, at most four.
template <typename T, typename Run>
inline void each_panel(int columns, const Run& run) {
    const int total = vectors<T>(columns);
    int done = 0;
    for (; total - done >= 4; done += 4) run(std::integral_constant<int, 4>{}, done * lanes<T>);
    const int column = done * lanes<T>;
    if (total - done == 3) run(std::integral_constant<int, 3>{}, column);
    if (total - done == 2) run(std::integral_constant<int, 2>{}, column);
    if (total - done == 1) run(std::integral_constant<int, 1>{}, column);
}

}  // namespace MOLGCN_ISA
}  // namespace molgcn
