// The norms at the end of a layer, and the gradients of their input, for the networks of both operators.
#pragma once

#include <cmath>

#include "activation.hpp"
#include "memory.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

// Batch norm of one vector of columns, with its statistics in registers. `of` has them for all columns.
template <typename T>
struct NormedColumn {
    Vec<T> mean, scale, beta;

    template <typename Of>
    NormedColumn(const Of& of, int column) : mean(load(of.mean + column)), scale(load(of.scale + column)), beta(load(of.beta + column)) {}

    Vec<T> operator()(Vec<T> x) const { return (x - mean) * scale + beta; }
};

// The mean and 1 / deviation of one row.
template <typename T>
struct RowMoments {
    T mean, rstd;

    RowMoments() : mean(0), rstd(0) {}
    RowMoments(const T* row, int width, T eps) {
        T total = 0, squares = 0;
        int c = 0;
        Vec<T> sums{};
        for (; c + lanes<T> <= width; c += lanes<T>) sums += load(row + c);
        for (; c < width; c++) total += row[c];
        mean = (sum<T>(sums) + total) / width;
        Vec<T> deviations{};
        for (c = 0; c + lanes<T> <= width; c += lanes<T>) {
            const Vec<T> delta = load(row + c) - mean;
            deviations += delta * delta;
        }
        for (; c < width; c++) squares += (row[c] - mean) * (row[c] - mean);
        rstd = T(1) / std::sqrt((sum<T>(deviations) + squares) / width + eps);
    }

    Vec<T> normalised(const T* row, int column) const { return (load(row + column) - mean) * rstd; }
};

// Writes the gradient of a layer norm's row x to `to`. weighted(column) returns a vector of the gradient of the norm's output, times its
// weight; it may read what lies at `to` from there on.
template <typename T, typename Weighted>
inline void through_row_norm(const RowMoments<T>& row, const T* x, int width, ptrdiff_t stride, T* to, Weighted weighted) {
    Vec<T> totals{}, alongs{};
    for (int c = 0; c < stride; c += lanes<T>) {
        const Vec<T> g = weighted(c);
        store(to + c, g);
        totals += g;
        alongs += g * row.normalised(x, c);
    }
    const T total = sum<T>(totals) / width, along = sum<T>(alongs) / width;
    for (int c = 0; c < stride; c += lanes<T>) store(to + c, row.rstd * (load(to + c) - total - row.normalised(x, c) * along));
    zero(to + width, stride - width);
}

}  // namespace MOLGCN_ISA
}  // namespace molgcn
