// exp and what follows from it, on vectors. The results are a few units in the last place from exact ones.
#pragma once

#include <cstdint>

#include "simd.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

template <typename T>
struct OfExponential;
template <>
struct OfExponential<float> {
    using Int = int32_t;
    static constexpr int mantissa = 23, terms = 7, most = 88, least = -87;  // of the Taylor series; x up to which 2^n fits, and from which
    static constexpr float round = 12582912.0f, log2_high = 0.693359375f, log2_low = -2.12194440e-4f;  // 1.5 * 2^23; the high part is short
};
template <>
struct OfExponential<double> {
    using Int = int64_t;
    static constexpr int mantissa = 52, terms = 13, most = 709, least = -708;
    static constexpr double round = 6755399441055744.0, log2_high = 0.693147180369123816490, log2_low = 1.90821492927058770002e-10;
};

// Returns `v` between two bounds, and NaN as it is.
template <typename T>
inline Vec<T> between(Vec<T> v, T least, T most) {
    v = v < splat<T>(least) ? splat<T>(least) : v;
    return v > splat<T>(most) ? splat<T>(most) : v;
}

// exp(x) as scale * (1 + rest), which exp and expm1 complete. x is cut off where exp is no longer a normal number.
template <typename T>
struct Exponential {
    Vec<T> scale, rest;

    explicit Exponential(Vec<T> x) {
        using Of = OfExponential<T>;
        using Ints = Vec<typename Of::Int>;
        x = between<T>(x, Of::least, Of::most);
        const Vec<T> shifted = x * T(1.44269504088896340736) + Of::round, n = shifted - Of::round;  // x / log(2), rounded
        const Vec<T> r = (x - n * Of::log2_high) - n * Of::log2_low;
        T factor = 1;
        for (int i = 2; i <= Of::terms; i++) factor /= i;
        Vec<T> sum = splat<T>(factor);
        for (int i = Of::terms; i > 1; i--) sum = sum * r + (factor *= i);
        rest = sum * r;
        // The low bits of `shifted` are n, and 2^n has n in its exponent. A NaN stays one in `rest`.
        constexpr typename Of::Int bias = (sizeof(T) == 4 ? 127 : 1023);
        scale = Vec<T>((Ints(shifted) - Ints(splat<T>(Of::round)) + bias) << Of::mantissa);
    }
};

template <typename T>
inline Vec<T> exp(Vec<T> x) {
    const Exponential<T> it(x);
    return it.scale * it.rest + it.scale;
}

// Returns exp(x) - 1, which loses no digits near 0.
template <typename T>
inline Vec<T> expm1(Vec<T> x) {
    const Exponential<T> it(x);
    return it.scale * it.rest + (it.scale - 1);
}

template <typename T>
inline Vec<T> sigmoid(Vec<T> x) {
    return reciprocal<T>(exp<T>(-x) + 1);
}

template <typename T>
inline Vec<T> tanh(Vec<T> x) {
    const Vec<T> y = expm1<T>(between<T>(x, -20, 20) * 2);  // beyond, the result is 1 to the last digit
    return y / (y + 2);
}

}  // namespace MOLGCN_ISA
}  // namespace molgcn
