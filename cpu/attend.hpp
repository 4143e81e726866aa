// What scores of graph attention and their gradients consist of, for the columns of one head.
#pragma once

#include "simd.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

// Returns the sum of a * b.
template <typename T>
inline T product(const T* a, const T* b, int columns) {
    T total = 0;
#pragma omp simd reduction(+ : total)
    for (int k = 0; k < columns; k++) total += a[k] * b[k];
    return total;
}

// Returns the sum of att * leaky(pre).
template <typename T>
inline T product_leaky(const T* att, const T* pre, T slope, int columns) {
    T total = 0;
#pragma omp simd reduction(+ : total)
    for (int k = 0; k < columns; k++) total += att[k] * (pre[k] * (pre[k] > 0 ? T(1) : slope));
    return total;
}

template <typename T>
inline void add(T factor, const T* __restrict from, int columns, T* __restrict to) {
#pragma omp simd
    for (int k = 0; k < columns; k++) to[k] += factor * from[k];
}

// Writes to `to`, or adds to it, factor * att * the slope of leaky at pre.
template <bool accumulate, typename T>
inline void through_leaky(T factor, const T* __restrict att, const T* __restrict pre, T slope, int columns, T* __restrict to) {
#pragma omp simd
    for (int k = 0; k < columns; k++) {
        const T x = factor * att[k] * (pre[k] > 0 ? T(1) : slope);
        to[k] = accumulate ? to[k] + x : x;
    }
}

}  // namespace MOLGCN_ISA
}  // namespace molgcn
