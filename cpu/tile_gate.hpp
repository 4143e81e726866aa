// The average over one tile's neighbours with gates as weights, and its gradients. A gate is the sigmoid of a directed bond's number.
#pragma once

#include "exponential.hpp"
#include "tile_edges.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

constexpr double gate_epsilon = 1e-6;  // molgcn.ops.layer_network.steps.GATE_EPSILON

// Calls visit(constant P, atom, column, first bond, last bond) for the atoms of a tile, P vectors of columns at a time. Bonds are counted from the
// tile's first one.
template <typename T, typename Visit>
void each_gated(const TileStep<T>& t, ptrdiff_t stride, const Visit& visit) {
    const int32_t* rowptr = t.run.rowptr + t.tile.first_row;
    each_panel<T>(stride, [&](auto panel, int column) {
        for (int i = 0; i < t.tile.num_rows; i++) visit(panel, i, column, int(rowptr[i] - t.first_bond), int(rowptr[i + 1] - t.first_bond));
    });
}

template <typename T>
void gate_rows(const TileStep<T>& t, const Instruction& step) {
    const TileRows<T> source = t.rows(step.source), gates = t.rows(step.bonds), out = t.rows(step.out);
    const int32_t* col = t.run.col + t.first_bond;
    each_gated(t, out.stride, [&](auto panel, int i, int column, int first, int last) {
        constexpr int P = panel.value;
        Vec<T> sum[P] = {}, total[P];
        for (int p = 0; p < P; p++) total[p] = splat<T>(T(gate_epsilon));
        for (int e = first; e < last; e++) {
            const T *row = source[col[e] - t.tile.first_row] + column, *gate = gates[e] + column;
            for (int p = 0; p < P; p++) {
                const Vec<T> weight = sigmoid<T>(load(gate + p * lanes<T>));
                sum[p] += weight * load(row + p * lanes<T>);
                total[p] += weight;
            }
        }
        for (int p = 0; p < P; p++) store(out[i] + column + p * lanes<T>, sum[p] * reciprocal<T>(total[p]));
    });
}

// Writes the gradient of the gates before the sigmoid: s (1 - s) g (h - o) / (sum of s + epsilon). The weights s wait in the result.
template <typename T>
void gate_gradient(const TileStep<T>& t, const Instruction& step) {
    const TileRows<T> source = t.rows(step.source), gates = t.rows(step.bonds), grad = t.rows(step.grad), out = t.rows(step.out);
    const int32_t* col = t.run.col + t.first_bond;
    each_gated(t, out.stride, [&](auto panel, int i, int column, int first, int last) {
        constexpr int P = panel.value;
        Vec<T> sum[P] = {}, total[P], share[P];
        for (int p = 0; p < P; p++) total[p] = splat<T>(T(gate_epsilon));
        for (int e = first; e < last; e++) {
            const T *row = source[col[e] - t.tile.first_row] + column, *gate = gates[e] + column;
            T* to = out[e] + column;
            for (int p = 0; p < P; p++) {
                const Vec<T> weight = sigmoid<T>(load(gate + p * lanes<T>));
                sum[p] += weight * load(row + p * lanes<T>);
                total[p] += weight;
                store(to + p * lanes<T>, weight);
            }
        }
        for (int p = 0; p < P; p++) {
            const Vec<T> scale = reciprocal<T>(total[p]);
            sum[p] *= scale;
            share[p] = load(grad[i] + column + p * lanes<T>) * scale;
        }
        for (int e = first; e < last; e++) {
            const T* row = source[col[e] - t.tile.first_row] + column;
            T* to = out[e] + column;
            for (int p = 0; p < P; p++) {
                const Vec<T> weight = load(to + p * lanes<T>);
                store(to + p * lanes<T>, weight * (1 - weight) * share[p] * (load(row + p * lanes<T>) - sum[p]));
            }
        }
    });
    end_gradient(t, step, false);
}

// Writes the gradient of the rows that are averaged: the sum over the bonds that leave an atom.
template <typename T>
void gate_source_gradient(const TileStep<T>& t, const Instruction& step) {
    const TileRows<T> gates = t.rows(step.bonds), grad = t.rows(step.grad), out = t.rows(step.out);
    const int32_t* col = t.run.col + t.first_bond;
    zero(out.data, out.count * out.stride);
    each_gated(t, out.stride, [&](auto panel, int i, int column, int first, int last) {
        constexpr int P = panel.value;
        Vec<T> total[P];
        for (int p = 0; p < P; p++) total[p] = splat<T>(T(gate_epsilon));
        for (int e = first; e < last; e++) {
            for (int p = 0; p < P; p++) total[p] += sigmoid<T>(load(gates[e] + column + p * lanes<T>));
        }
        for (int p = 0; p < P; p++) total[p] = load(grad[i] + column + p * lanes<T>) * reciprocal<T>(total[p]);
        for (int e = first; e < last; e++) {
            T* to = out[col[e] - t.tile.first_row] + column;
            for (int p = 0; p < P; p++) {
                store(to + p * lanes<T>, load(to + p * lanes<T>) + sigmoid<T>(load(gates[e] + column + p * lanes<T>)) * total[p]);
            }
        }
    });
    end_gradient(t, step, false);
}

}  // namespace MOLGCN_ISA
}  // namespace molgcn
