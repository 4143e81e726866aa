// Matrix products on one tile, and the gradients of their source, matrix and bias.
#pragma once

#include "activation.hpp"
#include "philox.hpp"
#include "tile_rows.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

// Zeroes what dropout number `site` drops and scales the rest, row by row.
template <typename T>
void drop(const TileStep<T>& t, int site, int number) {
    const TileRows<T> rows = t.rows(number);
    const Dropout dropout(t.run.seed, site, t.run.dropout);
    for (int i = 0; i < rows.count; i++) dropout.apply(t.first_row(number) + i, rows.width, T(1 / (1 - t.run.dropout)), rows[i]);
}

// Zeroes the columns behind the whole vectors that a product writes.
template <typename T>
void clear_tail(const TileRows<T>& rows) {
    const ptrdiff_t written = vectors<T>(rows.width) * lanes<T>;
    for (int i = 0; written < rows.stride && i < rows.count; i++) zero(rows[i] + written, rows.stride - written);
}

// Computes act(x W^T + b) + a, where a may be left out.
template <typename T>
void map_rows(const TileStep<T>& t, const Instruction& step, const TileRows<T>& source, const TileRows<T>& add, const TileRows<T>& out) {
    const Operand<T> x{source.data, source.stride, 1};
    const Panels<T>& weight = t.parameters.transposed(step.weight);
    T* to = out.data;
    const T *bias = t.parameters.vector(step.bias), *more = add.data;
    const ptrdiff_t stride = out.stride;
    if (step.activation == of_relu) {
        weight.multiply_by(x, source.count, [=](int row, int column, Vec<T> v) { store(to + row * stride + column, relu<T>(v + load(bias + column))); });
    } else if (add) {
        weight.multiply_by(x, source.count, [=](int row, int column, Vec<T> v) {
            store(to + row * stride + column, v + load(bias + column) + load(more + row * stride + column));
        });
    } else {
        weight.multiply_by(x, source.count, [=](int row, int column, Vec<T> v) { store(to + row * stride + column, v + load(bias + column)); });
    }
    clear_tail(out);
}

// Computes out = dropout(relu(x W^T + b)) + a.
template <typename T>
void linear_rows(const TileStep<T>& t, const Instruction& step) {
    const TileRows<T> source = t.rows(step.source), out = t.rows(step.out), add = t.rows(step.add), none{nullptr, 0, 0, 0};
    const EqualRows<T>& equal = t.memory.equal();
    if (const TileRows<T> distinct = equal.distinct(source, out.width)) {
        const TileRows<T> results = equal.results(distinct, out);
        map_rows(t, step, distinct, none, results);
        for (int i = 0; i < out.count; i++) {
            const T* from = results[equal.number(i)];
            for (ptrdiff_t c = 0; c < out.stride; c += lanes<T>) store(out[i] + c, add ? load(from + c) + load(add[i] + c) : load(from + c));
        }
    } else {
        map_rows(t, step, source, add, out);
    }
    if (step.site >= 0) drop(t, step.site, step.out);
}

// Writes the gradient of the source, G W.
template <typename T>
void input_gradient(const TileStep<T>& t, const Instruction& step) {
    const TileRows<T> grad = t.rows(step.grad), out = t.rows(step.out), add = t.rows(step.add);
    const Operand<T> g{grad.data, grad.stride, 1};
    const Panels<T>& weight = t.parameters.matrix(step.weight);
    T* to = out.data;
    const T* more = add.data;
    const ptrdiff_t stride = out.stride;
    if (add) {
        weight.multiply_by(g, grad.count, [=](int row, int column, Vec<T> v) {
            store(to + row * stride + column, v + load(more + row * stride + column));
        });
    } else {
        weight.multiply_by(g, grad.count, [=](int row, int column, Vec<T> v) { store(to + row * stride + column, v); });
    }
    clear_tail(out);
    end_gradient(t, step, true);
}

constexpr int rows_at_once = 96;  // of G and x, of which a panel's columns lie in the first-level cache while all rows of G^T read them

// Adds G^T x to the gradient of a matrix.
template <typename T>
void add_matrix_gradient(const TileStep<T>& t, const Instruction& step, const TileRows<T>& grad, const TileRows<T>& source) {
    T* to = t.sums.parameter(t.partial, step.weight);
    const ptrdiff_t stride = source.stride;
    if (source.count == 0) return;
    bool first = t.sums.is_first(t.partial, step.weight);
    for (int row = 0; row < source.count; row += rows_at_once, first = false) {
        const int rows = std::min(source.count - row, rows_at_once);
        multiply<T>({grad[row], 1, grad.stride}, grad.width, source.width, rows, source[row], stride, [=](int i, int column, Vec<T> v) {
            T* sum = to + i * stride + column;
            store(sum, first ? v : load(sum) + v);
        });
    }
}

// Adds the gradients of matrix and bias: G^T x and the columns' sums of G.
template <typename T>
void add_product(const TileStep<T>& t, const Instruction& step) {
    const TileRows<T> grad = t.rows(step.grad), source = t.rows(step.source);
    const EqualRows<T>& equal = t.memory.equal();
    if (step.weight >= 0) {
        if (const TileRows<T> distinct = equal.distinct(source, grad.width)) {
            const TileRows<T> sums = equal.results(distinct, grad);
            zero(sums.data, sums.count * sums.stride);
            for (int i = 0; i < grad.count; i++) {
                T* to = sums[equal.number(i)];
                for (ptrdiff_t c = 0; c < grad.stride; c += lanes<T>) store(to + c, load(to + c) + load(grad[i] + c));
            }
            add_matrix_gradient(t, step, sums, distinct);
        } else {
            add_matrix_gradient(t, step, grad, source);
        }
    }
    if (step.bias < 0) return;
    T* bias = t.sums.parameter(t.partial, step.bias);
    for (ptrdiff_t column = 0; column < grad.stride; column += lanes<T>) {
        Vec<T> even{}, odd{};
        for (int i = 0; i + 1 < grad.count; i += 2) {
            even += load(grad[i] + column);
            odd += load(grad[i + 1] + column);
        }
        if (grad.count % 2) even += load(grad[grad.count - 1] + column);
        store(bias + column, load(bias + column) + (even + odd));
    }
}

}  // namespace MOLGCN_ISA
}  // namespace molgcn
