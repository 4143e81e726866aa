// The scores of attention of one tile's atoms, and their gradients, which go to what the scores were computed from.
//
// An entry of an atom is a bond that points at it from another atom, or the atom's own bond, which comes last and has the mean of the bonds'
// rows. GAT adds up numbers of the source, the target and the bond, and takes a leaky relu of the sum; GATv2 takes the leaky relu of the sum
// of their rows, times a vector.
#pragma once

#include <algorithm>
#include <vector>

#include "attend.hpp"
#include "heads.hpp"
#include "tile_gather.hpp"
#include "tile_linear.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

template <typename T>
class TileScores {
public:
    // A bond, counted from the batch's first, or -1 for the atom's own.
    struct Entry {
        int atom;
        int64_t bond;
    };

    const TileRows<T> source, target;
    const int size;  // columns of a head
    const Heads<T> heads;
    const int stride;  // numbers of a row's heads, in whole vectors
    std::vector<Entry> entries;  // of an atom, in its first part
    int count = 0;
    HeadNumbers<T> scores;  // of the entries; the gradients of the scores before these go back

    TileScores(const TileStep<T>& t, const Instruction& step)
        : source(t.rows(step.source)), target(t.rows(step.target)), size(source.width / t.run.pass.attends[step.attend].heads),
          heads(t.run.pass.attends[step.attend].heads, size, source.stride), stride(heads.stride()), entries(most_entries(t)),
          scores(entries.size(), stride), t_(t), step_(step), it_(t.run.pass.attends[step.attend]), bonds_(t, step), slope_(T(double_of(it_.slope))),
          att_(t.parameters.vector(it_.att)), att_target_(t.parameters.vector(it_.att_target)), att_bonds_(t.parameters.vector(it_.att_bonds)),
          att_parts_(heads.size()), parts_(heads.size()), own_bond_(source.stride), of_own_bond_(source.stride), pre_(entries.size(), stride),
          from_(is_v2() ? 0 : source.count, stride), to_(is_v2() ? 0 : source.count, stride), row_scores_(num_row_scores(), stride),
          of_from_(is_v2() ? 0 : source.count, stride), of_to_(is_v2() ? 0 : source.count, stride), of_row_scores_(num_row_scores(), stride) {
        for (const Array<T>* row : {&own_bond_, &of_own_bond_}) zero(row->data(), source.stride);
        heads.part(att_, att_parts_.data());
        if (!is_v2()) take_scores();
    }

    bool is_v2() const { return bool(target); }

    // Lists the entries of an atom, with their scores and, for GAT, what goes into the leaky relu.
    void take(int i) {
        count = 0;
        bonds_.each(i, [&](int j, T, int64_t bond) {
            if (j != i) entries[count++] = {j, bond};
        });
        entries[count++] = {i, -1};
        if (is_v2() && bonds_.with_rows()) average_bonds();
        for (int e = 0; e < count; e++) is_v2() ? score_columns(i, e) : score_heads(i, e);
    }

    // Returns the gradient of a score's sum for GAT, that of the score for GATv2, which goes on column by column.
    Vec<T> through_leaky(int e, int h, Vec<T> of_score) { return is_v2() ? of_score : of_score * slope_of_leaky<T>(pre_.at(e, h), slope_); }

    // Adds the gradients of the scores of an atom's entries to those of GAT's parts of scores.
    void add_gradients(int i) {
        for (int h = 0; h < stride; h += lanes<T>) {
            Vec<T> total{};
            for (int e = 0; e < count; e++) {
                const Vec<T> used = scores.at(e, h);
                of_from_.add(entries[e].atom, h, used);
                total += used;
                if (num_row_scores() > 0) each_bond(entries[e], [&](int64_t row, T part) { of_row_scores_.add(row, h, part * used); });
            }
            of_to_.add(i, h, total);
        }
    }

    // Adds the gradients of GATv2's entries: what the sources take, w k g, and what goes through the scores to sources, target, bonds and the vector.
    template <typename Panel>
    void through_scores(Panel, int i, int column, HeadNumbers<T>& weights, const T* grad, const TileRows<T>& of_source, const TileRows<T>& of_target, T* sums) {
        constexpr int P = Panel::value;
        T* const of_att = t_.sums.parameter(t_.partial, it_.att);
        Vec<T> of_vector[P] = {}, to_target[P] = {};
        for (int e = 0; e < count; e++) {
            const Entry entry = entries[e];
            const T *from = source[entry.atom], *to = target[i], *bond = bond_row(entry);
            T* const of_bond = sums == nullptr ? nullptr : entry.bond >= 0 ? sums + bonds_.index_of(entry.bond) * source.stride : of_own_bond_.data();
            for (int p = 0; p < P; p++) {
                const int c = column + p * lanes<T>;
                Vec<T> x = load(from + c) + load(to + c);
                if (bond != nullptr) x += load(bond + c);
                const Vec<T> used = heads.spread(scores[e], c) * slope_of_leaky<T>(x, slope_), of_pre = used * load(att_ + c);
                of_vector[p] += used * x;
                to_target[p] += of_pre;
                if (of_bond != nullptr) store(of_bond + c, load(of_bond + c) + of_pre);
                if (!of_source) continue;
                T* const of_from = of_source[entry.atom] + c;
                store(of_from, load(of_from) + of_pre + heads.spread(weights[e], c) * load(grad + c));
            }
        }
        for (int p = 0; p < P; p++) {
            const int c = column + p * lanes<T>;
            store(of_att + c, load(of_att + c) + of_vector[p]);
            if (of_target) store(of_target[i] + c, load(of_target[i] + c) + to_target[p]);
        }
    }

    // Adds the gradient of the mean of an atom's bonds to those of the bonds.
    void share_own_bond(T* sums) {
        each_bond({0, -1}, [&](int64_t row, T part) { add(part, of_own_bond_.data(), int(source.stride), sums + row * source.stride); });
        zero(of_own_bond_.data(), source.stride);
    }

    // Adds the gradients of GAT's parts of scores to those of the atoms, the bonds and the vectors.
    void end_scores(const TileRows<T>& of_source, T* of_bonds) {
        each_panel<T>(source.stride, [&](auto panel, int column) {
            for (int64_t i = 0; i < source.count; i++) {
                for (int c = column; c < column + panel.value * lanes<T>; c += lanes<T>) {
                    if (of_source) add_to(of_source[i] + c, heads.spread(of_from_[i], c) * load(att_ + c) + heads.spread(of_to_[i], c) * load(att_target_ + c));
                }
            }
            add_vector_gradient(panel, column, source.count, of_from_, [&](int64_t i) { return source[i]; }, it_.att);
            add_vector_gradient(panel, column, source.count, of_to_, [&](int64_t i) { return source[i]; }, it_.att_target);
            if (num_row_scores() == 0) return;
            for (int64_t b = 0; of_bonds != nullptr && b < num_row_scores(); b++) {
                for (int c = column; c < column + panel.value * lanes<T>; c += lanes<T>)
                    add_to(of_bonds + b * source.stride + c, heads.spread(of_row_scores_[b], c) * load(att_bonds_ + c));
            }
            add_vector_gradient(panel, column, num_row_scores(), of_row_scores_, [&](int64_t b) { return bonds_.at(b); }, it_.att_bonds);
        });
    }
private:
    // Returns the most entries of an atom of the tile.
    static int most_entries(const TileStep<T>& t) {
        const int32_t* rowptr = t.run.rowptr + t.tile.first_row;
        int most = 0;
        for (int i = 0; i < t.tile.num_rows; i++) most = std::max(most, int(rowptr[i + 1] - rowptr[i]));
        return most + 1;
    }
    // GAT's scores of the rows of bonds that the tile has.
    int64_t num_row_scores() const { return is_v2() || !bonds_.with_rows() ? 0 : step_.memory >= 0 ? t_.run.num_table_rows : t_.num_bonds; }

    void take_scores() {
        heads.part(att_target_, parts_.data());
        for (int i = 0; i < source.count; i++) {
            const auto row = [x = source[i]](int column) { return load_any(x + column); };
            heads.sums(att_parts_.data(), from_[i], row);
            heads.sums(parts_.data(), to_[i], row);
        }
        heads.part(att_bonds_, parts_.data());
        for (int64_t b = 0; b < num_row_scores(); b++) heads.sums(parts_.data(), row_scores_[b], [x = bonds_.at(b)](int column) { return load_any(x + column); });
    }

    void score_heads(int i, int e) {
        const Entry entry = entries[e];
        for (int h = 0; h < stride; h += lanes<T>) {
            Vec<T> x = from_.at(entry.atom, h) + to_.at(i, h);
            if (num_row_scores() > 0) each_bond(entry, [&](int64_t row, T part) { x += part * row_scores_.at(row, h); });
            store_any(pre_[e] + h, x);
            store_any(scores[e] + h, x * slope_of_leaky<T>(x, slope_));
        }
    }
    void score_columns(int i, int e) {
        const T *from = source[entries[e].atom], *to = target[i], *bond = bond_row(entries[e]);
        heads.sums(att_parts_.data(), scores[e], [=, slope = slope_](int column) {
            Vec<T> x = load_any(from + column) + load_any(to + column);
            if (bond != nullptr) x += load_any(bond + column);
            return x * slope_of_leaky<T>(x, slope);
        });
    }

    // Calls visit(row, part) for the rows of bonds whose parts add up to an entry's: that of its bond, or the mean of the others.
    template <typename Visit>
    void each_bond(const Entry& entry, const Visit& visit) const {
        if (entry.bond >= 0) return visit(bonds_.index_of(entry.bond), T(1));
        for (int e = 0; e + 1 < count; e++) visit(bonds_.index_of(entries[e].bond), T(1) / T(count - 1));
    }
    void average_bonds() {
        zero(own_bond_.data(), source.stride);
        each_bond({0, -1}, [&](int64_t row, T part) { add(part, bonds_.at(row), int(source.stride), own_bond_.data()); });
    }
    const T* bond_row(const Entry& entry) const { return !bonds_.with_rows() ? nullptr : entry.bond >= 0 ? bonds_.row(entry.bond) : own_bond_.data(); }
    static void add_to(T* to, Vec<T> v) { store(to, load(to) + v); }
    template <typename Panel, typename Rows>
    void add_vector_gradient(Panel, int column, int64_t count, HeadNumbers<T>& numbers, const Rows& rows, int parameter) {
        constexpr int P = Panel::value;
        Vec<T> sum[P] = {};
        for (int64_t i = 0; i < count; i++) {
            const T *x = rows(i) + column, *of = numbers[i];
            for (int p = 0; p < P; p++) sum[p] += heads.spread(of, column + p * lanes<T>) * load(x + p * lanes<T>);
        }
        T* to = t_.sums.parameter(t_.partial, parameter) + column;
        for (int p = 0; p < P; p++) add_to(to + p * lanes<T>, sum[p]);
    }

    const TileStep<T>& t_;
    const Instruction& step_;
    const AttendOptions& it_;
    const TileBonds<T> bonds_;
    const T slope_;
    const T *att_, *att_target_, *att_bonds_;
    const Array<T> att_parts_, parts_, own_bond_, of_own_bond_;
    HeadNumbers<T> pre_;                              // of the entries
    HeadNumbers<T> from_, to_, row_scores_;           // GAT's, of the tile's atoms and of the rows of bonds
    HeadNumbers<T> of_from_, of_to_, of_row_scores_;  // their gradients
};

}  // namespace MOLGCN_ISA
}  // namespace molgcn
