// Measures the arithmetic peak of this machine, by fused multiply-adds on registers alone.
#pragma once

#include <chrono>

#include "simd.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

// Keeps the compiler from seeing through a value.
template <typename T>
inline void opaque(Vec<T>& v) {
#if defined(__x86_64__)
    asm volatile("" : "+x"(v));
#else
    asm volatile("" : "+w"(v));
#endif
}

// Returns the float32 GFLOP/s of `num_threads` threads. Each of them does ten independent multiply-adds, `iterations` times.
inline double peak_gflops(int num_threads, long iterations) {
    using V = Vec<float>;
    double total = 0;
    const auto start = std::chrono::steady_clock::now();
#pragma omp parallel num_threads(num_threads) reduction(+ : total)
    {
        V x = splat(1.0001f), y = splat(1e-3f);
        V a{}, b{}, c{}, d{}, e{}, f{}, g{}, h{}, i{}, j{};
        for (long n = 0; n < iterations; n++) {
            for (V* v : {&a, &b, &c, &d, &e, &f, &g, &h, &i, &j}) {
                *v = x * *v + y;
                opaque<float>(*v);
            }
        }
        const V rest = a + b + c + d + e + f + g + h + i + j;
        total += rest[0] == 0 ? 0 : 1;
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return total * iterations * 10 * 2 * lanes<float> / seconds / 1e9;
}

}  // namespace MOLGCN_ISA
}  // namespace molgcn
