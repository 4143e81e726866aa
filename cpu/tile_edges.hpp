// Rows of one tile's directed bonds: from atoms to bonds and back, and the gradients.
#pragma once

#include <cstring>

#include "tile_gather.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

// Calls visit(source, target, bond, reverse) for every directed bond of a tile, all counted from the tile's first atom and bond.
template <typename T, typename Visit>
void each_edge(const TileStep<T>& t, const Visit& visit) {
    const int32_t *rowptr = t.run.rowptr + t.tile.first_row, *col = t.run.col + t.first_bond, *reverse = t.run.reverse + t.first_bond;
    for (int target = 0; target < t.tile.num_rows; target++) {
        for (int e = int(rowptr[target] - t.first_bond); e < rowptr[target + 1] - t.first_bond; e++) {
            visit(col[e] - t.tile.first_row, target, e, int(reverse[e] - t.first_bond));
        }
    }
}

// Stores f(column) in all columns of a row, a vector at a time.
template <typename T, typename Function>
void fill_row(T* to, ptrdiff_t stride, const Function& f) {
    for (ptrdiff_t c = 0; c < stride; c += lanes<T>) store(to + c, f(c));
}

// Computes the source's row, plus the bond's row, minus the reverse's row.
template <typename T>
void expand_rows(const TileStep<T>& t, const Instruction& step) {
    const TileRows<T> source = t.rows(step.source), out = t.rows(step.out), reverse = t.rows(step.add);
    const TileBonds<T> bonds(t, step);
    each_edge(t, [&](int from, int, int e, int back) {
        const T *row = source[from], *more = bonds.with_rows() ? bonds.row(t.first_bond + e) : nullptr, *less = reverse ? reverse[back] : nullptr;
        fill_row(out[e], out.stride, [&](ptrdiff_t c) {
            Vec<T> v = load(row + c);
            if (more != nullptr) v += load(more + c);
            if (less != nullptr) v -= load(less + c);
            return v;
        });
    });
}

// Writes the gradient of the source: the sum over the bonds that leave an atom.
template <typename T>
void expand_gradient(const TileStep<T>& t, const Instruction& step) {
    const TileRows<T> grad = t.rows(step.grad), out = t.rows(step.out);
    zero(out.data, out.count * out.stride);
    each_edge(t, [&](int from, int, int e, int) {
        T* to = out[from];
        fill_row(to, out.stride, [&](ptrdiff_t c) { return load(to + c) + load(grad[e] + c); });
    });
    end_gradient(t, step, false);
}

// Writes the gradient of the bonds' rows, or adds it to the chunk's sums for the table of distinct bonds.
template <typename T>
void expand_bonds_gradient(const TileStep<T>& t, const Instruction& step) {
    const TileRows<T> grad = t.rows(step.grad), out = t.rows(step.out);
    const TileBonds<T> bonds(t, step);
    if (step.table < 0) {
        std::memcpy(out.data, grad.data, grad.count * grad.stride * sizeof(T));
        return end_gradient(t, step, false);
    }
    T* sums = t.sums.table(t.partial, step.table);
    for (int e = 0; e < grad.count; e++) {
        T* to = sums + bonds.index_of(t.first_bond + e) * grad.stride;
        fill_row(to, grad.stride, [&](ptrdiff_t c) { return load(to + c) + load(grad[e] + c); });
    }
}

// Writes the gradient of the rows whose reverses are subtracted.
template <typename T>
void reverse_gradient(const TileStep<T>& t, const Instruction& step) {
    const TileRows<T> grad = t.rows(step.grad), out = t.rows(step.out);
    each_edge(t, [&](int, int, int e, int back) { fill_row(out[e], out.stride, [&](ptrdiff_t c) { return -load(grad[back] + c); }); });
    end_gradient(t, step, false);
}

// Computes the sum over the bonds that point at an atom.
template <typename T>
void sum_incoming_rows(const TileStep<T>& t, const Instruction& step) {
    const TileRows<T> source = t.rows(step.source), out = t.rows(step.out);
    zero(out.data, out.count * out.stride);
    each_edge(t, [&](int, int target, int e, int) {
        T* to = out[target];
        fill_row(to, out.stride, [&](ptrdiff_t c) { return load(to + c) + load(source[e] + c); });
    });
}

// Writes the gradient of the bonds' rows that are summed.
template <typename T>
void sum_incoming_gradient(const TileStep<T>& t, const Instruction& step) {
    const TileRows<T> grad = t.rows(step.grad), out = t.rows(step.out), add = t.rows(step.add);
    each_edge(t, [&](int, int target, int e, int) {
        fill_row(out[e], out.stride, [&](ptrdiff_t c) { return add ? load(grad[target] + c) + load(add[e] + c) : load(grad[target] + c); });
    });
    end_gradient(t, step, true);
}

// Writes a gradient that a step hands on to what it adds.
template <typename T>
void add_gradient(const TileStep<T>& t, const Instruction& step) {
    const TileRows<T> grad = t.rows(step.grad), out = t.rows(step.out);
    std::memcpy(out.data, grad.data, out.count * out.stride * sizeof(T));
    end_gradient(t, step, false);
}

}  // namespace MOLGCN_ISA
}  // namespace molgcn
