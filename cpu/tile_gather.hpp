// Sums along the bonds of one tile, and their gradients.
#pragma once

#include <type_traits>

#include "gather.hpp"
#include "tile_rows.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

// The bonds at the atoms of a tile, with their weights. `rows` has no data where bonds have no rows.
template <typename T>
class TileBonds {
public:
    TileBonds(const TileStep<T>& t, const Instruction& step)
        : rowptr_(t.run.rowptr + t.tile.first_row),
          col_(t.run.col),
          code_(step.memory >= 0 ? t.run.code : nullptr),
          scale_(t.run.scale + t.tile.first_row),
          first_atom_(t.tile.first_row),
          aggregation_(Aggregation(step.kind)),
          rows_(t.rows(step.bonds)) {
        if (code_ != nullptr) rows_ = {t.run.memory[step.memory], t.run.pass.memory[step.memory].stride, 0, 0};
        first_row_ = code_ == nullptr ? t.first_bond : 0;
    }

    bool with_rows() const { return rows_.data != nullptr; }
    bool is_max() const { return aggregation_ == Aggregation::max; }

    // Returns which of the rows a bond has.
    int64_t index_of(int64_t bond) const { return code_ == nullptr ? bond - first_row_ : code_[bond]; }
    const T* row(int64_t bond) const { return rows_[index_of(bond)]; }
    const T* at(int64_t index) const { return rows_[index]; }
    ptrdiff_t stride() const { return rows_.stride; }

    // Calls visit(source's row, weight, bond) for every bond that points at atom i.
    template <typename Visit>
    void each(int i, const Visit& visit) const {
        const bool loops = aggregation_ == Aggregation::gcn_loops, scaled = loops || aggregation_ == Aggregation::gcn;
        const int first = rowptr_[i], last = rowptr_[i + 1];
        const T plain = aggregation_ == Aggregation::mean ? T(1) / T(last - first) : T(1);
        for (int e = first; e < last; e++) {
            const int j = col_[e] - first_atom_;
            if (loops && j == i) continue;
            visit(j, scaled ? T(scale_[i] * scale_[j]) : plain, int64_t{e});
        }
    }

    // Returns whether the atom itself counts; `own` returns its weight.
    bool has_own(const Instruction& step) const { return aggregation_ == Aggregation::gcn_loops || step.weight >= 0; }
    T own(const TileStep<T>& t, const Instruction& step, int i) const {
        return aggregation_ == Aggregation::gcn_loops ? T(scale_[i] * scale_[i]) : T(1) + t.parameters.scalar(step.weight);
    }

private:
    const int32_t *rowptr_, *col_, *code_;
    const double* scale_;
    int first_atom_;
    Aggregation aggregation_;
    TileRows<T> rows_;
    int64_t first_row_;
};

template <int P, typename T>
[[gnu::noinline]] void gather_columns(const TileStep<T>& t, const Instruction& step, const TileBonds<T>& bonds, int column) {
    const TileRows<T> source = t.rows(step.source), out = t.rows(step.out);
    const bool has_own = bonds.has_own(step), with_rows = bonds.with_rows();
    const T* bias = step.bias < 0 ? nullptr : t.parameters.vector(step.bias) + column;
    for (int i = 0; i < out.count; i++) {
        Vec<T> c[P] = {};
        if (bonds.is_max()) {
            bool first = true;
            bonds.each(i, [&](int j, T, int64_t) {
                for (int p = 0; p < P; p++) {
                    const Vec<T> v = load(source[j] + column + p * lanes<T>);
                    c[p] = first ? v : (v > c[p]) | (v != v) ? v : c[p];
                }
                first = false;
            });
        } else if (with_rows) {
            bonds.each(i, [&](int j, T weight, int64_t bond) {
                const T *row = source[j] + column, *more = bonds.row(bond) + column;
                for (int p = 0; p < P; p++) c[p] += weight * relu<T>(load(row + p * lanes<T>) + load(more + p * lanes<T>));
            });
        } else {
            bonds.each(i, [&](int j, T weight, int64_t) {
                for (int p = 0; p < P; p++) c[p] += weight * load(source[j] + column + p * lanes<T>);
            });
        }
        const T own = has_own ? bonds.own(t, step, i) : T(0);
        for (int p = 0; p < P; p++) {
            if (has_own) c[p] += own * load(source[i] + column + p * lanes<T>);
            if (bias != nullptr) c[p] += load(bias + p * lanes<T>);
            store(out[i] + column + p * lanes<T>, c[p]);
        }
    }
}

template <typename T>
void gather_rows(const TileStep<T>& t, const Instruction& step) {
    const TileBonds<T> bonds(t, step);
    each_panel<T>(t.rows(step.out).stride, [&](auto panel, int column) { gather_columns<panel.value>(t, step, bonds, column); });
}

template <int P, typename T>
[[gnu::noinline]] void scatter_columns(const TileStep<T>& t, const Instruction& step, const TileBonds<T>& bonds, int column) {
    const TileRows<T> grad = t.rows(step.grad), source = t.rows(step.source), result = t.rows(step.result), out = t.rows(step.out), add = t.rows(step.add);
    const bool has_own = bonds.has_own(step), with_rows = bonds.with_rows();
    for (int i = 0; i < out.count; i++) {
        const T own = has_own ? bonds.own(t, step, i) : T(0);
        for (int p = 0; p < P; p++) {
            const int at = column + p * lanes<T>;
            Vec<T> v{};
            if (has_own) v = own * load(grad[i] + at);
            if (add) v += load(add[i] + at);
            store(out[i] + at, v);
        }
    }
    for (int i = 0; i < out.count; i++) {
        Vec<T> g[P], largest[P] = {}, count[P] = {};
        for (int p = 0; p < P; p++) g[p] = load(grad[i] + column + p * lanes<T>);
        const auto scatter = [&](int j, const auto& f) {
            T* to = out[j] + column;
            for (int p = 0; p < P; p++) store(to + p * lanes<T>, load(to + p * lanes<T>) + f(p));
        };
        if (bonds.is_max()) {
            const Vec<T> zero{}, one = splat<T>(1);
            for (int p = 0; p < P; p++) largest[p] = load(result[i] + column + p * lanes<T>);
            bonds.each(i, [&](int j, T, int64_t) {
                for (int p = 0; p < P; p++) count[p] += load(source[j] + column + p * lanes<T>) == largest[p] ? one : zero;
            });
            bonds.each(i, [&](int j, T, int64_t) {
                scatter(j, [&](int p) { return load(source[j] + column + p * lanes<T>) == largest[p] ? g[p] / count[p] : zero; });
            });
        } else if (with_rows) {
            bonds.each(i, [&](int j, T weight, int64_t bond) {
                const T *row = source[j] + column, *more = bonds.row(bond) + column;
                scatter(j, [&](int p) { return where_positive<T>(load(row + p * lanes<T>) + load(more + p * lanes<T>), weight * g[p]); });
            });
        } else {
            bonds.each(i, [&](int j, T weight, int64_t) { scatter(j, [&](int p) { return weight * g[p]; }); });
        }
    }
}

// Writes the gradient of the source.
template <typename T>
void gather_gradient(const TileStep<T>& t, const Instruction& step) {
    const TileBonds<T> bonds(t, step);
    each_panel<T>(t.rows(step.out).stride, [&](auto panel, int column) { scatter_columns<panel.value>(t, step, bonds, column); });
    end_gradient(t, step, true);
}

// Writes the gradient of the bonds' rows, or adds it to the chunk's sums for the table of distinct bonds.
template <typename T>
void bonds_gradient(const TileStep<T>& t, const Instruction& step) {
    const TileBonds<T> bonds(t, step);
    const TileRows<T> grad = t.rows(step.grad), source = t.rows(step.source), out = t.rows(step.out);
    T* sums = step.table < 0 ? nullptr : t.sums.table(t.partial, step.table);
    for (int i = 0; i < grad.count; i++) {
        bonds.each(i, [&](int j, T weight, int64_t bond) {
            const T *row = source[j], *more = bonds.row(bond), *g = grad[i];
            T* to = (sums == nullptr ? out.data : sums) + bonds.index_of(bond) * grad.stride;
            for (ptrdiff_t c = 0; c < grad.stride; c += lanes<T>) {
                const Vec<T> v = where_positive<T>(load(row + c) + load(more + c), weight * load(g + c));
                store(to + c, sums == nullptr ? v : load(to + c) + v);
            }
        });
    }
    if (sums == nullptr) end_gradient(t, step, false);
}

// Writes the gradient of a part of the table's rows, from the sums over all tiles.
template <typename T>
void table_gradient(const TileStep<T>& t, const Instruction& step) {
    const TileRows<T> out = t.rows(step.out);
    std::memcpy(out.data, t.sums.table(t.partial, step.table) + t.first_bond * out.stride, out.count * out.stride * sizeof(T));
    end_gradient(t, step, false);
}

// Adds the gradient of eps.
template <typename T>
void add_eps_gradient(const TileStep<T>& t, const Instruction& step) {
    const TileRows<T> grad = t.rows(step.grad), source = t.rows(step.source);
    T total = 0;
    for (int i = 0; i < grad.count; i++) total += dot(grad[i], source[i], grad.width);
    *t.sums.parameter(t.partial, step.weight) += total;
}

}  // namespace MOLGCN_ISA
}  // namespace molgcn
