// Sums and dot products over the entries of a sparse matrix's rows, for rows of any width at any address.
#pragma once

#include <algorithm>

#include "gcn_conv.hpp"
#include "simd.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

template <typename T>
inline Vec<T> load_any(const T* p) {
    Vec<T> v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

template <typename T>
inline void store_any(T* p, Vec<T> v) {
    std::memcpy(p, &v, sizeof v);
}

constexpr int64_t prefetch_distance = 8;  // entries ahead: rows of large graphs lie in memory, not in cache

// Sums P vectors of columns over a row's entries. The last vector begins `last` columns after the first and may overlap the one before it,
// so that no element beyond a row is touched.
template <int P, typename T>
[[gnu::noinline]] void gather_panel(const Sparse<T>& a, int64_t first, int64_t rows, const T* in, ptrdiff_t in_stride, const T* bias, T* out,
                                    ptrdiff_t out_stride, ptrdiff_t last) {
    const int64_t end = a.rowptr[first + rows];
    for (int64_t i = first; i < first + rows; i++, out += out_stride) {
        Vec<T> c[P] = {};
        for (int64_t e = a.rowptr[i]; e < a.rowptr[i + 1]; e++) {
            const char* ahead = reinterpret_cast<const char*>(in + a.col[std::min(e + prefetch_distance, end - 1)] * in_stride);
            for (size_t line = 0; line < P * sizeof(Vec<T>); line += 64) __builtin_prefetch(ahead + line);
            const T* row = in + a.col[e] * in_stride;
            const T weight = a.weight[e];
            for (int p = 0; p < P; p++) c[p] += weight * load_any(row + (p == P - 1 ? last : p * lanes<T>));
        }
        for (int p = 0; p < P; p++) {
            const ptrdiff_t column = p == P - 1 ? last : p * lanes<T>;
            store_any(out + column, bias == nullptr ? c[p] : c[p] + load_any(bias + column));
        }
    }
}

// Sums the entries of rows that are narrower than a vector.
template <typename T>
void gather_narrow(const Sparse<T>& a, int64_t first, int64_t rows, const T* in, int columns, const T* bias, T* out, ptrdiff_t out_stride) {
    for (int64_t i = first; i < first + rows; i++, out += out_stride) {
        T c[lanes<T>] = {};
        for (int64_t e = a.rowptr[i]; e < a.rowptr[i + 1]; e++) {
            const T* row = in + int64_t{a.col[e]} * columns;
            for (int k = 0; k < columns; k++) c[k] += a.weight[e] * row[k];
        }
        for (int k = 0; k < columns; k++) out[k] = bias == nullptr ? c[k] : c[k] + bias[k];
    }
}

// Computes out[i] = sum over the entries of row i of weight * in[col] (+ bias), for `rows` rows from `first` on; `in` is [num_nodes,
// columns].
template <typename T>
void gather(const Sparse<T>& a, int64_t first, int64_t rows, const T* in, int columns, const T* bias, T* out, ptrdiff_t out_stride) {
    if (columns < lanes<T>) return gather_narrow(a, first, rows, in, columns, bias, out, out_stride);
    each_panel<T>(columns, [&](auto panel, int column) {
        const ptrdiff_t last = std::min(column + (panel.value - 1) * lanes<T>, columns - lanes<T>) - column;
        gather_panel<panel.value>(a, first, rows, in + column, columns, bias == nullptr ? nullptr : bias + column, out + column, out_stride, last);
    });
}

template <typename T>
inline T dot(const T* a, const T* b, int columns) {
    Vec<T> total{};
    int k = 0;
    for (; k + lanes<T> <= columns; k += lanes<T>) total += load_any(a + k) * load_any(b + k);
    T rest = sum<T>(total);
    for (; k < columns; k++) rest += a[k] * b[k];
    return rest;
}

}  // namespace MOLGCN_ISA
}  // namespace molgcn
