// Products with a large right-hand side. It is packed into panels of up to four vectors of columns, so that any width streams from cache.
#pragma once

#include <algorithm>

#include "gemm.hpp"
#include "memory.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

// A matrix [rows, columns] in panels [rows, up to 4 vectors]. Columns are rounded up to whole vectors with zeros.
template <typename T>
class Panels {
public:
    // Reserves room for a matrix.
    Panels(int64_t max_rows, int columns) : columns_(columns), data_(max_rows * vectors<T>(columns) * lanes<T>) {}

    Panels(const T* data, int64_t rows, int columns, ptrdiff_t row_stride, ptrdiff_t column_stride) : Panels(rows, columns) {
        pack(data, rows, row_stride, column_stride);
    }

    // Packs the matrix whose element (row, column) is data[row * row_stride + column * column_stride].
    void pack(const T* data, int64_t rows, ptrdiff_t row_stride, ptrdiff_t column_stride) {
        rows_ = rows;
        each_panel([&](int first, int width, T* panel) {
            const int valid = std::min(columns_ - first, width);
            const T* from = data + first * column_stride;
            for (int64_t row = 0; row < rows; row++, from += row_stride, panel += width) {
                for (int c = 0; c < valid; c++) panel[c] = from[c * column_stride];
                for (int c = valid; c < width; c++) panel[c] = T(0);
            }
        });
    }

    // Multiplies A by this matrix. Every vector of the result goes to epilogue(row, column, vector).
    template <typename Epilogue>
    void multiply_by(const Operand<T>& a, int rows, const Epilogue& epilogue) const {
        each_panel([&](int first, int width, const T* panel) {
            multiply<T>(a, rows, width, int(rows_), panel, width, [=](int row, int column, Vec<T> v) { epilogue(row, first + column, v); });
        });
    }

private:
    template <typename Visit>
    void each_panel(const Visit& visit) const {
        const int total = vectors<T>(columns_) * lanes<T>;
        for (int first = 0; first < total; first += 4 * lanes<T>) {
            visit(first, std::min(total - first, 4 * lanes<T>), data_.data() + rows_ * first);
        }
    }

    int columns_;
    int64_t rows_ = 0;
    Array<T> data_;
};

}  // namespace MOLGCN_ISA
}  // namespace molgcn
