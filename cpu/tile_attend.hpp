// Attention of one tile's atoms to their neighbours and themselves, and its gradients. See Attend in molgcn/ops/layer_network/steps.py.
//
// An entry of an atom is a bond that points at it from another atom, or the atom's own bond, which comes last and has the mean of the bonds'
// rows. It has the weight w and dropout's factor k; the atom has the gradient g. The gradient of a score is w (k g . source - mean), where
// mean is the sum of w k g . source over the entries, and that of the source is w k g. The score's gradient then goes to what the score was
// computed from.
#pragma once

#include <algorithm>
#include <vector>

#include "attend.hpp"
#include "heads.hpp"
#include "tile_gather.hpp"
#include "tile_linear.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

// Numbers for each head of each of some rows, all zero at first, with a vector of room at the end.
template <typename T>
class HeadNumbers {
public:
    HeadNumbers(int64_t rows, int stride) : stride_(stride), numbers_(rows * stride + lanes<T>) {}

    T* operator[](int64_t row) { return numbers_.data() + row * stride_; }
    Vec<T> at(int64_t row, int head) { return load_any((*this)[row] + head); }
    void add(int64_t row, int head, Vec<T> v) { store_any((*this)[row] + head, at(row, head) + v); }

private:
    int stride_;
    std::vector<T> numbers_;
};

// A tile's attention.
template <typename T>
class TileAttention {
public:
    TileAttention(const TileStep<T>& t, const Instruction& step)
        : t_(t), step_(step), it_(t.run.pass.attends[step.attend]), source_(t.rows(step.source)), target_(t.rows(step.target)), bonds_(t, step),
          size_(source_.width / it_.heads), heads_(it_.heads, size_, source_.stride), stride_(heads_.stride()), slope_(T(number(it_.slope))),
          share_(it_.concat ? T(1) : T(1) / T(it_.heads)), kept_(T(1 / (1 - number(it_.rate)))), dropout_(t.run.seed, it_.dropout, number(it_.rate)),
          att_(t.parameters.vector(it_.att)), att_target_(t.parameters.vector(it_.att_target)), att_bonds_(t.parameters.vector(it_.att_bonds)),
          att_parts_(heads_.size()), parts_(heads_.size()), row_(source_.stride), own_bond_(source_.stride), of_own_bond_(source_.stride),
          entries_(most_entries(t)), scores_(entries_.size(), stride_), weights_(entries_.size(), stride_), pre_(entries_.size(), stride_),
          factors_(dropout_.active() ? entries_.size() : 0, stride_), atom_(2, stride_),
          from_(is_v2() ? 0 : source_.count, stride_), to_(is_v2() ? 0 : source_.count, stride_), row_scores_(num_row_scores(), stride_),
          of_from_(is_v2() ? 0 : source_.count, stride_), of_to_(is_v2() ? 0 : source_.count, stride_), of_row_scores_(num_row_scores(), stride_) {
        for (const Array<T>* row : {&row_, &own_bond_, &of_own_bond_}) zero(row->data(), source_.stride);
        heads_.part(att_, att_parts_.data());
        if (!is_v2()) take_scores();
    }

    void forward() {
        const TileRows<T> out = t_.rows(step_.out), softmax = t_.rows(step_.second);
        const T* bias = t_.parameters.vector(step_.bias);
        T *largest = atom_[0], *scale = atom_[1];
        for (int i = 0; i < out.count; i++) {
            take_entries(i);
            for (int h = 0; h < stride_; h += lanes<T>) {
                Vec<T> most = scores_.at(0, h), sum{};
                for (int e = 1; e < count(); e++) {
                    const Vec<T> score = scores_.at(e, h);
                    most = score > most ? score : most;
                }
                for (int e = 0; e < count(); e++) {
                    const Vec<T> weight = exp<T>(scores_.at(e, h) - most);
                    sum += weight;
                    store_any(weights_[e] + h, weight);
                }
                store_any(largest + h, most);
                store_any(scale + h, T(1) / sum);
                for (int e = 0; e < count(); e++) store_any(weights_[e] + h, weights_.at(e, h) * load_any(scale + h) * factor(e, h));
            }
            zero(softmax[i], softmax.stride);
            for (int h = 0; h < it_.heads; h++) {
                softmax[i][2 * h] = largest[h];
                softmax[i][2 * h + 1] = scale[h];
            }
            const bool whole = it_.concat;
            T* to = whole ? out[i] : row_.data();
            each_panel<T>(source_.stride, [&](auto panel, int column) {
                constexpr int P = panel.value;
                Vec<T> sum[P] = {};
                for (int p = 0; whole && p < P; p++) sum[p] = load(bias + column + p * lanes<T>);
                for (int e = 0; e < count(); e++) {
                    const T *x = source_[entries_[e].atom] + column, *weights = weights_[e];
                    for (int p = 0; p < P; p++) sum[p] += heads_.spread(weights, column + p * lanes<T>) * load(x + p * lanes<T>);
                }
                for (int p = 0; p < P; p++) store(to + column + p * lanes<T>, sum[p]);
            });
            if (whole) continue;
            for (int c = 0; c < out.stride; c += lanes<T>) store(out[i] + c, load(bias + c));
            for (int h = 0; h < it_.heads; h++) add(T(1), to + h * size_, size_, out[i]);
        }
    }

    void backward() {
        const TileRows<T> grad = t_.rows(step_.grad), softmax = t_.rows(step_.result), of_source = t_.rows(step_.out);
        const TileRows<T> of_target = t_.rows(step_.second), of_bonds = t_.rows(step_.third);
        for (const TileRows<T>& rows : {of_source, of_target, of_bonds})
            if (rows) zero(rows.data, rows.count * rows.stride);
        T* const sums = step_.table < 0 ? of_bonds.data : t_.sums.table(t_.partial, step_.table);
        T *largest = atom_[0], *scale = atom_[1];
        for (int i = 0; i < grad.count; i++) {
            for (int h = 0; h < it_.heads; h++) largest[h] = softmax[i][2 * h], scale[h] = softmax[i][2 * h + 1];
            const T* g = whole_gradient(grad[i]);
            heads_.part(g, parts_.data());
            take_entries(i);
            for (int e = 0; e < count(); e++) {
                const T* x = source_[entries_[e].atom];
                heads_.sums(parts_.data(), weights_[e], [=](int column) { return load_any(x + column); });
            }
            for (int h = 0; h < stride_; h += lanes<T>) {
                Vec<T> all{};
                for (int e = 0; e < count(); e++) {
                    const Vec<T> weight = exp<T>(scores_.at(e, h) - load_any(largest + h)) * load_any(scale + h), k = factor(e, h), along = k * weights_.at(e, h);
                    all += weight * along;
                    store_any(scores_[e] + h, along);
                    store_any(weights_[e] + h, weight);
                }
                for (int e = 0; e < count(); e++) {
                    const Vec<T> weight = weights_.at(e, h), of_score = weight * (scores_.at(e, h) - all);
                    store_any(scores_[e] + h, is_v2() ? of_score : of_score * slope_of_leaky<T>(pre_.at(e, h), slope_));
                    store_any(weights_[e] + h, weight * factor(e, h));
                }
            }
            if (!is_v2()) add_score_gradients(i);
            each_panel<T>(source_.stride, [&](auto panel, int column) {
                if (is_v2()) through_scores(panel, i, column, g, of_source, of_target, sums);
                else if (of_source) to_sources(panel, column, g, of_source);
            });
            if (is_v2() && sums != nullptr) share_own_bond(sums);
        }
        if (!is_v2()) end_scores(of_source, sums);
    }

private:
    // A bond, counted from the batch's first, or -1 for the atom's own.
    struct Entry {
        int atom;
        int64_t bond;
    };

    static double number(const int (&bits)[2]) {
        double value;
        std::memcpy(&value, bits, sizeof value);
        return value;
    }
    // Returns the most entries of an atom of the tile.
    static int most_entries(const TileStep<T>& t) {
        const int32_t* rowptr = t.run.rowptr + t.tile.first_row;
        int most = 0;
        for (int i = 0; i < t.tile.num_rows; i++) most = std::max(most, int(rowptr[i + 1] - rowptr[i]));
        return most + 1;
    }
    bool is_v2() const { return bool(target_); }
    int count() const { return count_; }
    // Returns dropout's factors of an entry's heads, times the share that a head has in the result.
    Vec<T> factor(int e, int h) { return dropout_.active() ? share_ * factors_.at(e, h) : splat<T>(share_); }

    // Returns the gradient of the heads side by side, from that of the result.
    const T* whole_gradient(const T* grad) {
        if (it_.concat) return grad;
        for (int h = 0; h < it_.heads; h++) std::memcpy(row_.data() + h * size_, grad, size_ * sizeof(T));
        return row_.data();
    }

    // GAT's scores of the rows of bonds that the tile has.
    int64_t num_row_scores() const { return is_v2() || !bonds_.with_rows() ? 0 : step_.memory >= 0 ? t_.run.num_table_rows : t_.num_bonds; }

    void take_scores() {
        heads_.part(att_target_, parts_.data());
        for (int i = 0; i < source_.count; i++) {
            const auto row = [x = source_[i]](int column) { return load_any(x + column); };
            heads_.sums(att_parts_.data(), from_[i], row);
            heads_.sums(parts_.data(), to_[i], row);
        }
        heads_.part(att_bonds_, parts_.data());
        for (int64_t b = 0; b < num_row_scores(); b++) heads_.sums(parts_.data(), row_scores_[b], [x = bonds_.at(b)](int column) { return load_any(x + column); });
    }

    // Lists the entries of an atom, with their scores and, for GAT, what goes into the leaky relu.
    void take_entries(int i) {
        count_ = 0;
        bonds_.each(i, [&](int j, T, int64_t bond) {
            if (j != i) entries_[count_++] = {j, bond};
        });
        entries_[count_++] = {i, -1};
        if (is_v2() && bonds_.with_rows()) average_bonds();
        for (int e = 0; e < count(); e++) is_v2() ? score_columns(i, e) : score_heads(i, e);
        if (dropout_.active()) drop_entries(i);
    }
    void score_heads(int i, int e) {
        const Entry entry = entries_[e];
        for (int h = 0; h < stride_; h += lanes<T>) {
            Vec<T> x = from_.at(entry.atom, h) + to_.at(i, h);
            if (num_row_scores() > 0) each_bond(entry, [&](int64_t row, T part) { x += part * row_scores_.at(row, h); });
            store_any(pre_[e] + h, x);
            store_any(scores_[e] + h, x * slope_of_leaky<T>(x, slope_));
        }
    }
    void score_columns(int i, int e) {
        const T *from = source_[entries_[e].atom], *to = target_[i], *bond = bond_row(entries_[e]);
        heads_.sums(att_parts_.data(), scores_[e], [=, slope = slope_](int column) {
            Vec<T> x = load_any(from + column) + load_any(to + column);
            if (bond != nullptr) x += load_any(bond + column);
            return x * slope_of_leaky<T>(x, slope);
        });
    }

    // Calls visit(row, part) for the rows of bonds whose parts add up to an entry's: that of its bond, or the mean of the others.
    template <typename Visit>
    void each_bond(const Entry& entry, const Visit& visit) const {
        if (entry.bond >= 0) return visit(bonds_.index_of(entry.bond), T(1));
        for (int e = 0; e + 1 < count(); e++) visit(bonds_.index_of(entries_[e].bond), T(1) / T(count() - 1));
    }
    void average_bonds() {
        zero(own_bond_.data(), source_.stride);
        each_bond({0, -1}, [&](int64_t row, T part) { add(part, bonds_.at(row), int(source_.stride), own_bond_.data()); });
    }
    const T* bond_row(const Entry& entry) const { return !bonds_.with_rows() ? nullptr : entry.bond >= 0 ? bonds_.row(entry.bond) : own_bond_.data(); }
    void share_own_bond(T* sums) {
        each_bond({0, -1}, [&](int64_t row, T part) { add(part, of_own_bond_.data(), int(source_.stride), sums + row * source_.stride); });
        zero(of_own_bond_.data(), source_.stride);
    }

    // Adds the gradient that an atom's entries hand on to their sources, w k g.
    template <typename Panel>
    void to_sources(Panel, int column, const T* grad, const TileRows<T>& of_source) {
        constexpr int P = Panel::value;
        Vec<T> g[P];
        for (int p = 0; p < P; p++) g[p] = load(grad + column + p * lanes<T>);
        for (int e = 0; e < count(); e++) {
            T* to = of_source[entries_[e].atom] + column;
            const T* weights = weights_[e];
            for (int p = 0; p < P; p++) store(to + p * lanes<T>, load(to + p * lanes<T>) + heads_.spread(weights, column + p * lanes<T>) * g[p]);
        }
    }

    // Adds the gradients of GATv2's entries: what the sources take, and what goes through the scores to sources, target, bonds and the vector.
    template <typename Panel>
    void through_scores(Panel, int i, int column, const T* grad, const TileRows<T>& of_source, const TileRows<T>& of_target, T* sums) {
        constexpr int P = Panel::value;
        T* const of_att = t_.sums.parameter(t_.partial, it_.att);
        Vec<T> of_vector[P] = {}, to_target[P] = {};
        for (int e = 0; e < count(); e++) {
            const Entry entry = entries_[e];
            const T *from = source_[entry.atom], *to = target_[i], *bond = bond_row(entry);
            T* const of_bond = sums == nullptr ? nullptr : entry.bond >= 0 ? sums + bonds_.index_of(entry.bond) * source_.stride : of_own_bond_.data();
            for (int p = 0; p < P; p++) {
                const int c = column + p * lanes<T>;
                Vec<T> x = load(from + c) + load(to + c);
                if (bond != nullptr) x += load(bond + c);
                const Vec<T> used = heads_.spread(scores_[e], c) * slope_of_leaky<T>(x, slope_), of_pre = used * load(att_ + c);
                of_vector[p] += used * x;
                to_target[p] += of_pre;
                if (of_bond != nullptr) store(of_bond + c, load(of_bond + c) + of_pre);
                if (!of_source) continue;
                T* const of_from = of_source[entry.atom] + c;
                store(of_from, load(of_from) + of_pre + heads_.spread(weights_[e], c) * load(grad + c));
            }
        }
        for (int p = 0; p < P; p++) {
            const int c = column + p * lanes<T>;
            store(of_att + c, load(of_att + c) + of_vector[p]);
            if (of_target) store(of_target[i] + c, load(of_target[i] + c) + to_target[p]);
        }
    }

    // Adds the gradients of the scores of an atom's entries to those of GAT's parts of scores.
    void add_score_gradients(int i) {
        for (int h = 0; h < stride_; h += lanes<T>) {
            Vec<T> total{};
            for (int e = 0; e < count(); e++) {
                const Vec<T> used = scores_.at(e, h);
                of_from_.add(entries_[e].atom, h, used);
                total += used;
                if (num_row_scores() > 0) each_bond(entries_[e], [&](int64_t row, T part) { of_row_scores_.add(row, h, part * used); });
            }
            of_to_.add(i, h, total);
        }
    }

    // Adds the gradients of GAT's parts of scores to those of the atoms, the bonds and the vectors.
    void end_scores(const TileRows<T>& of_source, T* of_bonds) {
        each_panel<T>(source_.stride, [&](auto panel, int column) {
            for (int64_t i = 0; i < source_.count; i++) {
                for (int c = column; c < column + panel.value * lanes<T>; c += lanes<T>) {
                    if (of_source) add_to(of_source[i] + c, heads_.spread(of_from_[i], c) * load(att_ + c) + heads_.spread(of_to_[i], c) * load(att_target_ + c));
                }
            }
            add_vector_gradient(panel, column, source_.count, of_from_, [&](int64_t i) { return source_[i]; }, it_.att);
            add_vector_gradient(panel, column, source_.count, of_to_, [&](int64_t i) { return source_[i]; }, it_.att_target);
            if (num_row_scores() == 0) return;
            for (int64_t b = 0; of_bonds != nullptr && b < num_row_scores(); b++) {
                for (int c = column; c < column + panel.value * lanes<T>; c += lanes<T>)
                    add_to(of_bonds + b * source_.stride + c, heads_.spread(of_row_scores_[b], c) * load(att_bonds_ + c));
            }
            add_vector_gradient(panel, column, num_row_scores(), of_row_scores_, [&](int64_t b) { return bonds_.at(b); }, it_.att_bonds);
        });
    }
    static void add_to(T* to, Vec<T> v) { store(to, load(to) + v); }
    template <typename Panel, typename Rows>
    void add_vector_gradient(Panel, int column, int64_t count, HeadNumbers<T>& numbers, const Rows& rows, int parameter) {
        constexpr int P = Panel::value;
        Vec<T> sum[P] = {};
        for (int64_t i = 0; i < count; i++) {
            const T *x = rows(i) + column, *of = numbers[i];
            for (int p = 0; p < P; p++) sum[p] += heads_.spread(of, column + p * lanes<T>) * load(x + p * lanes<T>);
        }
        T* to = t_.sums.parameter(t_.partial, parameter) + column;
        for (int p = 0; p < P; p++) add_to(to + p * lanes<T>, sum[p]);
    }

    void drop_entries(int i) {
        for (int e = 0; e < count(); e++) {
            const bool own = entries_[e].bond < 0;
            const int64_t row = own ? t_.tile.first_row + i : entries_[e].bond;
            std::fill_n(factors_[e], stride_, T(1));
            dropout_.apply(uint32_t(row), it_.heads, kept_, factors_[e], own);
        }
    }

    const TileStep<T>& t_;
    const Instruction& step_;
    const AttendOptions& it_;
    const TileRows<T> source_, target_;
    const TileBonds<T> bonds_;
    const int size_;  // columns of a head
    const Heads<T> heads_;
    const int stride_;  // numbers of a row's heads, in whole vectors
    const T slope_, share_, kept_;
    const Dropout dropout_;
    const T *att_, *att_target_, *att_bonds_;
    const Array<T> att_parts_, parts_, row_, own_bond_, of_own_bond_;
    std::vector<Entry> entries_;                                        // of an atom, in its first part
    int count_ = 0;
    HeadNumbers<T> scores_, weights_, pre_, factors_;                   // of the entries
    HeadNumbers<T> atom_;                                               // an atom's largest scores and reciprocal sums
    HeadNumbers<T> from_, to_, row_scores_;                             // GAT's, of the tile's atoms and of the rows of bonds
    HeadNumbers<T> of_from_, of_to_, of_row_scores_;                    // their gradients
};

template <typename T>
[[gnu::noinline]] void attend_rows(const TileStep<T>& t, const Instruction& step) {
    TileAttention<T>(t, step).forward();
}

template <typename T>
[[gnu::noinline]] void attend_gradient(const TileStep<T>& t, const Instruction& step) {
    TileAttention<T>(t, step).backward();
}

}  // namespace MOLGCN_ISA
}  // namespace molgcn
