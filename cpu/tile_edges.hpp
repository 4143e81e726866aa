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

// Computes the source's row, plus the target's row, plus the bond's row, each where it is given.
template <typename T>
void expand_rows(const TileStep<T>& t, const Instruction& step) {
    const TileRows<T> source = t.rows(step.source), target = t.rows(step.target), out = t.rows(step.out);
    const TileBonds<T> bonds(t, step);
    each_edge(t, [&](int from, int to, int e, int) {
        const T *row = source ? source[from] : nullptr, *end = target ? target[to] : nullptr;
        const T* more = bonds.with_rows() ? bonds.row(t.first_bond + e) : nullptr;
        fill_row(out[e], out.stride, [&](ptrdiff_t c) {
            Vec<T> v{};
            if (row != nullptr) v += load(row + c);
            if (end != nullptr) v += load(end + c);
            if (more != nullptr) v += load(more + c);
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

// Computes the sum over the bonds that point at an atom, a value or the gradient of one.
template <typename T>
void sum_incoming_rows(const TileStep<T>& t, const Instruction& step) {
    const TileRows<T> source = t.rows(step.source), out = t.rows(step.out);
    zero(out.data, out.count * out.stride);
    each_edge(t, [&](int, int target, int e, int) {
        T* to = out[target];
        fill_row(to, out.stride, [&](ptrdiff_t c) { return load(to + c) + load(source[e] + c); });
    });
    end_gradient(t, step, false);
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

// Computes, for every bond, the sum over the bonds that point at its source, except its own reverse; or writes the gradient of these. The few
// others are added up without the reverse. Their sum less the reverse would round differently for bonds with equal surroundings.
template <typename T>
void sum_non_backtracking(const TileStep<T>& t, const Instruction& step) {
    constexpr int few = 4;
    const bool backward = step.grad >= 0;
    const TileRows<T> from = t.rows(backward ? step.grad : step.source), out = t.rows(step.out);
    const int32_t *rowptr = t.run.rowptr + t.tile.first_row, *reverse = t.run.reverse + t.first_bond;
    for (int atom = 0; atom < t.tile.num_rows; atom++) {
        const int first = int(rowptr[atom] - t.first_bond), last = int(rowptr[atom + 1] - t.first_bond);
        const auto back = [&](int e) { return int(reverse[e] - t.first_bond); };
        const auto read = [&](int e, ptrdiff_t c) { return load(from[backward ? back(e) : e] + c); };
        for (ptrdiff_t c = 0; c < out.stride; c += lanes<T>) {
            Vec<T> sum{};
            for (int e = first; last - first > few && e < last; e++) sum += read(e, c);
            for (int e = first; e < last; e++) {
                Vec<T> others = sum - (last - first > few ? read(e, c) : Vec<T>{});
                for (int other = first; last - first <= few && other < last; other++) {
                    if (other != e) others += read(other, c);
                }
                store(out[backward ? e : back(e)] + c, others);
            }
        }
    }
    if (backward) end_gradient(t, step, false);
}

// Computes the mean of both directions of every bond, or writes its gradient.
template <typename T>
void average_directions(const TileStep<T>& t, const Instruction& step) {
    const bool backward = step.grad >= 0;
    const TileRows<T> from = t.rows(backward ? step.grad : step.source), out = t.rows(step.out);
    each_edge(t, [&](int, int, int e, int back) {
        fill_row(out[e], out.stride, [&](ptrdiff_t c) { return (load(from[e] + c) + load(from[back] + c)) * T(0.5); });
    });
    if (backward) end_gradient(t, step, false);
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
