// What scores of graph attention and their gradients consist of, for the columns of one head.
#pragma once

#include "gather.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

// Returns `v` with zeros in its first `count` lanes.
template <typename T>
inline Vec<T> without_first(int count, Vec<T> v) {
    struct Ramp {
        T at[2 * lanes<T>];
        constexpr Ramp() : at() {
            for (int i = 0; i < lanes<T>; i++) at[lanes<T> + i] = 1;
        }
    };
    static constexpr Ramp ramp;
    return where_positive<T>(load_any(ramp.at + lanes<T> - count), v);
}

template <typename T>
constexpr bool fills_vector(int columns) {
    return columns >= lanes<T>;
}

// Returns the sum of f(column, vector of columns) over columns in whole vectors. Where the last overlaps, its lanes do not count.
template <typename T, typename Function>
inline T sum_of(int columns, const Function& f) {
    const int whole = (columns - 1) / lanes<T>, last = columns - lanes<T>, twice = whole * lanes<T> - last;
    Vec<T> total = f(last);
    if (twice > 0) total = without_first<T>(twice, total);
    for (int i = 0; i < whole; i++) total += f(i * lanes<T>);
    return sum<T>(total);
}
// Stores f(column) in whole vectors of `to`. The last vector is computed before what it overlaps is stored.
template <typename T, typename Function>
inline void store_all(int columns, T* to, const Function& f) {
    const int whole = (columns - 1) / lanes<T>, last = columns - lanes<T>;
    const Vec<T> tail = f(last);
    for (int i = 0; i < whole; i++) store_any(to + i * lanes<T>, f(i * lanes<T>));
    store_any(to + last, tail);
}

template <typename T>
inline Vec<T> slope_of_leaky(Vec<T> pre, T slope) {
    return pre > Vec<T>{} ? splat<T>(1) : splat<T>(slope);
}

// Returns the sum of a * b.
template <typename T>
inline T product(const T* a, const T* b, int columns) {
    if (fills_vector<T>(columns)) return sum_of<T>(columns, [=](int k) { return load_any(a + k) * load_any(b + k); });
    T total = 0;
#pragma omp simd reduction(+ : total)
    for (int k = 0; k < columns; k++) total += a[k] * b[k];
    return total;
}

// Returns the sum of att * leaky(pre).
template <typename T>
inline T product_leaky(const T* att, const T* pre, T slope, int columns) {
    if (fills_vector<T>(columns))
        return sum_of<T>(columns, [=](int k) {
            const Vec<T> x = load_any(pre + k);
            return load_any(att + k) * (x * slope_of_leaky<T>(x, slope));
        });
    T total = 0;
#pragma omp simd reduction(+ : total)
    for (int k = 0; k < columns; k++) total += att[k] * (pre[k] * (pre[k] > 0 ? T(1) : slope));
    return total;
}

template <typename T>
inline void add(T factor, const T* __restrict from, int columns, T* __restrict to) {
    if (fills_vector<T>(columns)) return store_all(columns, to, [=](int k) { return load_any(to + k) + factor * load_any(from + k); });
#pragma omp simd
    for (int k = 0; k < columns; k++) to[k] += factor * from[k];
}

// Writes to `to`, or adds to it, factor * att * the slope of leaky at pre.
template <bool accumulate, typename T>
inline void through_leaky(T factor, const T* __restrict att, const T* __restrict pre, T slope, int columns, T* __restrict to) {
    if (fills_vector<T>(columns))
        return store_all(columns, to, [=](int k) {
            const Vec<T> x = factor * load_any(att + k) * slope_of_leaky<T>(load_any(pre + k), slope);
            return accumulate ? load_any(to + k) + x : x;
        });
#pragma omp simd
    for (int k = 0; k < columns; k++) {
        const T x = factor * att[k] * (pre[k] > 0 ? T(1) : slope);
        to[k] = accumulate ? to[k] + x : x;
    }
}

}  // namespace MOLGCN_ISA
}  // namespace molgcn
