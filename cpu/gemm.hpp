// Products of small matrices in cache: C = A B. A block of rows times up to four vectors of columns is in registers at a time.
#pragma once

#include "simd.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

// A matrix read element by element: element (row, k) lies at data[row * row_stride + k * k_stride].
template <typename T>
struct Operand {
    const T* data;
    ptrdiff_t row_stride, k_stride;
};

constexpr int block_rows(int panel) { return accumulators / panel < 12 ? accumulators / panel : 12; }

// The most rows that a block reads beyond the last one asked for.
constexpr int slack_rows = 12;

// Multiplies one block. The epilogue is passed by value, so that what it holds stays in registers. This is a function of its own: inlined
// into the loop over blocks, GCC's code was 10 % slower. A smaller block for the last rows was slower too.
template <int R, int P, typename T, typename Epilogue>
[[gnu::noinline]] void multiply_block(const Operand<T>& a, int first_row, int valid_rows, int k_count, const T* b, ptrdiff_t b_stride, int column,
                                      Epilogue epilogue) {
    Vec<T> c[R][P] = {};
    const T* row = a.data + first_row * a.row_stride;
    const T* b_row = b + column;
    for (int k = 0; k < k_count; k++) {
        if constexpr (R < P) {
            Vec<T> s[R];
#pragma GCC unroll 12
            for (int r = 0; r < R; r++) s[r] = splat<T>(row[r * a.row_stride]);
#pragma GCC unroll 4
            for (int p = 0; p < P; p++) {
                const Vec<T> v = load(b_row + p * lanes<T>);
#pragma GCC unroll 12
                for (int r = 0; r < R; r++) c[r][p] += s[r] * v;
            }
        } else {
            Vec<T> v[P];
#pragma GCC unroll 4
            for (int p = 0; p < P; p++) v[p] = load(b_row + p * lanes<T>);
#pragma GCC unroll 12
            for (int r = 0; r < R; r++) {
                const Vec<T> s = splat<T>(row[r * a.row_stride]);
#pragma GCC unroll 4
                for (int p = 0; p < P; p++) c[r][p] += s * v[p];
            }
        }
        row += a.k_stride;
        b_row += b_stride;
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; r++) {
        if (r < valid_rows) {
#pragma GCC unroll 4
            for (int p = 0; p < P; p++) epilogue(first_row + r, column + p * lanes<T>, c[r][p]);
        }
    }
}

template <int P, typename T, typename Epilogue>
[[gnu::noinline]] void multiply_panel(const Operand<T>& a, int rows, int k_count, const T* b, ptrdiff_t b_stride, int column, const Epilogue& epilogue) {
    constexpr int R = block_rows(P);
    const int blocks = (rows + R - 1) / R, shorter = blocks * R - rows;  // so many blocks could have a row less, so that none computes in vain
    int row = 0;
    for (int block = 0; shorter <= blocks && block < shorter; block++, row += R - 1)
        multiply_block<R - 1, P>(a, row, R - 1, k_count, b, b_stride, column, epilogue);
    for (; row < rows; row += R) multiply_block<R, P>(a, row, rows - row, k_count, b, b_stride, column, epilogue);
}

// Computes C[rows, columns] = A[rows, k_count] B[k_count, columns], columns rounded up to whole vectors. Every vector of C goes to
// epilogue(row, column, vector). Up to slack_rows rows of A beyond `rows` are read and their products dropped.
template <typename T, typename Epilogue>
inline void multiply(const Operand<T>& a, int rows, int columns, int k_count, const T* b, ptrdiff_t b_stride, const Epilogue& epilogue) {
    each_panel<T>(columns, [&](auto panel, int column) { multiply_panel<panel.value>(a, rows, k_count, b, b_stride, column, epilogue); });
}

}  // namespace MOLGCN_ISA
}  // namespace molgcn
