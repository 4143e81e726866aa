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
#include "exponential.hpp"
#include "tile_gather.hpp"
#include "tile_linear.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

// A tile's attention. Size: the type of a head's number of columns, an int or what attend.hpp has for it.
template <typename T, typename Size>
class TileAttention {
public:
    TileAttention(const TileStep<T>& t, const Instruction& step, Size size)
        : t_(t), step_(step), it_(t.run.pass.attends[step.attend]), heads_(it_.heads), stride_(int(row_stride<T>(it_.heads))), source_(t.rows(step.source)), target_(t.rows(step.target)),
          bonds_(t, step), size_(size), slope_(T(number(it_.slope))), kept_(T(1 / (1 - number(it_.rate)))),
          dropout_(t.run.seed, it_.dropout, number(it_.rate)), att_(t.parameters.vector(it_.att)), att_target_(t.parameters.vector(it_.att_target)),
          att_bonds_(t.parameters.vector(it_.att_bonds)) {
        if (!is_v2()) take_scores();
    }

    void forward() {
        const TileRows<T> out = t_.rows(step_.out), softmax = t_.rows(step_.second);
        const T* bias = t_.parameters.vector(step_.bias);
        std::vector<T> largest(stride_), total(stride_);
        for (int i = 0; i < out.count; i++) {
            take_entries(i);
            for (int h = 0; h < stride_; h += lanes<T>) {
                Vec<T> most = at_heads(scores_, 0, h), sum{};
                for (int e = 1; e < count(); e++) {
                    const Vec<T> score = at_heads(scores_, e, h);
                    most = score > most ? score : most;
                }
                store_any(largest.data() + h, most);
                for (int e = 0; e < count(); e++) sum += weigh(e, h, most);
                store_any(total.data() + h, T(1) / sum);
            }
            zero(softmax[i], softmax.stride);
            for (int h = 0; h < heads_; h++) {
                softmax[i][2 * h] = largest[h];
                softmax[i][2 * h + 1] = total[h];
            }
            T* to = out[i];
            for (int c = 0; c < out.stride; c += lanes<T>) store(to + c, load(bias + c));
            for (int e = 0; e < count(); e++) {
                const T *x = source_[entries_[e].atom], *kept = factors(e);
                for (int h = 0; h < heads_; h++) add(weights_[e * stride_ + h] * total[h] * kept[h] * share(), x + h * size(), size(), to + at(h));
            }
        }
    }

    void backward() {
        const TileRows<T> grad = t_.rows(step_.grad), softmax = t_.rows(step_.result), of_source = t_.rows(step_.out);
        const TileRows<T> of_target = t_.rows(step_.second), of_bonds = t_.rows(step_.third);
        for (const TileRows<T>& rows : {of_source, of_target, of_bonds})
            if (rows) zero(rows.data, rows.count * rows.stride);
        T* const sums = step_.table < 0 ? of_bonds.data : t_.sums.table(t_.partial, step_.table);
        T* const of_att = t_.sums.parameter(t_.partial, it_.att);
        std::vector<T> largest(stride_), scale(stride_), mean(stride_), products, used(stride_), of_pre(source_.stride);
        for (int i = 0; i < grad.count; i++) {
            take_entries(i);
            for (int h = 0; h < heads_; h++) largest[h] = softmax[i][2 * h], scale[h] = softmax[i][2 * h + 1];
            for (int h = 0; h < stride_; h += lanes<T>)
                for (int e = 0; e < count(); e++) weigh(e, h, load_any(largest.data() + h), load_any(scale.data() + h));
            products.resize(std::max(products.size(), weights_.size()));
            std::fill(mean.begin(), mean.end(), T(0));
            for (int e = 0; e < count(); e++) {
                const T *x = source_[entries_[e].atom], *kept = factors(e);
                for (int h = 0; h < heads_; h++) {
                    const T along = kept[h] * share() * product(grad[i] + at(h), x + h * size(), size());
                    products[e * stride_ + h] = along;
                    mean[h] += weights_[e * stride_ + h] * along;
                }
            }
            for (int e = 0; e < count(); e++) {
                const Entry entry = entries_[e];
                const T* kept = factors(e);
                T* const to = of_source ? of_source[entry.atom] : nullptr;
                for (int h = 0; h < stride_; h += lanes<T>) {
                    Vec<T> of_score = at_heads(weights_, e, h) * (at_heads(products, e, h) - load_any(mean.data() + h));
                    if (!is_v2()) of_score *= slope_of_leaky<T>(at_heads(pre_, e, h), slope_);
                    store_any(used.data() + h, of_score);
                }
                for (int h = 0; to != nullptr && h < heads_; h++)
                    add(weights_[e * stride_ + h] * kept[h] * share(), grad[i] + at(h), size(), to + h * size());
                if (is_v2()) {
                    const T* pre = pre_.data() + e * source_.stride;
                    for (int h = 0, c = 0; h < heads_; h++, c += size()) {
                        through_leaky<false>(used[h], att_ + c, pre + c, slope_, size(), of_pre.data() + c);
                        through_leaky<true>(used[h], pre + c, pre + c, slope_, size(), of_att + c);
                    }
                    if (to != nullptr) add(T(1), of_pre.data(), source_.width, to);
                    if (of_target) add(T(1), of_pre.data(), source_.width, of_target[i]);
                    if (sums != nullptr) to_bonds(entry, of_pre.data(), source_.width, sums, source_.stride);
                } else {
                    add(T(1), used.data(), stride_, of_from_.data() + entry.atom * stride_);
                    add(T(1), used.data(), stride_, of_to_.data() + i * stride_);
                    if (bonds_.with_rows()) to_bonds(entry, used.data(), stride_, of_row_scores_.data(), stride_);
                }
            }
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
    Size size() const { return size_; }
    bool is_v2() const { return bool(target_); }
    int count() const { return int(entries_.size()); }
    // Where a head's result is, and how much of the head it has.
    int at(int head) const { return it_.concat ? head * size() : 0; }
    T share() const { return it_.concat ? T(1) : T(1) / T(heads_); }

    // Computes GAT's scores of the tile's atoms and of the rows of bonds that it has.
    void take_scores() {
        from_.assign(size_t(source_.count) * stride_, T(0)), to_ = of_from_ = of_to_ = from_;
        for (int i = 0; i < source_.count; i++)
            for (int h = 0, c = 0; h < heads_; h++, c += size()) {
                from_[i * stride_ + h] = product(att_ + c, source_[i] + c, size());
                to_[i * stride_ + h] = product(att_target_ + c, source_[i] + c, size());
            }
        if (!bonds_.with_rows()) return;
        const int64_t rows = num_bond_rows();
        row_scores_.assign(rows * stride_, T(0)), of_row_scores_ = row_scores_;
        for (int64_t row = 0; row < rows; row++)
            for (int h = 0, c = 0; h < heads_; h++, c += size()) row_scores_[row * stride_ + h] = product(att_bonds_ + c, bonds_.at(row) + c, size());
    }
    int64_t num_bond_rows() const { return step_.memory >= 0 ? t_.run.num_table_rows : t_.num_bonds; }

    // Adds the gradients of GAT's scores to those of the atoms, the bonds and the vectors.
    void end_scores(const TileRows<T>& of_source, T* of_bonds) {
        T *of_att = t_.sums.parameter(t_.partial, it_.att), *of_att_target = t_.sums.parameter(t_.partial, it_.att_target);
        for (int i = 0; i < source_.count; i++)
            for (int h = 0, c = 0; h < heads_; h++, c += size()) {
                const T from = of_from_[i * stride_ + h], to = of_to_[i * stride_ + h];
                add(from, source_[i] + c, size(), of_att + c);
                add(to, source_[i] + c, size(), of_att_target + c);
                if (!of_source) continue;
                add(from, att_ + c, size(), of_source[i] + c);
                add(to, att_target_ + c, size(), of_source[i] + c);
            }
        if (!bonds_.with_rows()) return;
        T* of_att_bonds = t_.sums.parameter(t_.partial, it_.att_bonds);
        for (int64_t row = 0; row < num_bond_rows(); row++)
            for (int h = 0, c = 0; h < heads_; h++, c += size()) {
                const T score = of_row_scores_[row * stride_ + h];
                add(score, bonds_.at(row) + c, size(), of_att_bonds + c);
                if (of_bonds != nullptr) add(score, att_bonds_ + c, size(), of_bonds + row * source_.stride + c);
            }
    }

    // Lists the entries of an atom, with their scores and what goes into the leaky relu.
    void take_entries(int i) {
        entries_.clear();
        bonds_.each(i, [&](int j, T, int64_t bond) {
            if (j != i) entries_.push_back({j, bond});
        });
        entries_.push_back({i, -1});
        const size_t numbers = size_t(count()) * stride_;
        if (scores_.size() < numbers) scores_.resize(numbers), weights_.resize(numbers);
        const size_t inputs = size_t(count()) * (is_v2() ? source_.stride : stride_);
        if (pre_.size() < inputs) pre_.resize(inputs);
        for (int e = 0; e < count(); e++) is_v2() ? score_columns(i, e) : score_heads(i, e);
        if (dropout_.active()) drop_entries(i);
    }
    void score_heads(int i, int e) {
        const Entry entry = entries_[e];
        T* pre = pre_.data() + e * stride_;
        for (int h = 0; h < stride_; h += lanes<T>) store_any(pre + h, at_heads(from_, entry.atom, h) + at_heads(to_, i, h));
        if (bonds_.with_rows()) add_bonds(entry, row_scores_.data(), stride_, stride_, pre);
        for (int h = 0; h < stride_; h += lanes<T>) {
            const Vec<T> x = load_any(pre + h);
            store_any(scores_.data() + e * stride_ + h, x * slope_of_leaky<T>(x, slope_));
        }
    }
    void score_columns(int i, int e) {
        const Entry entry = entries_[e];
        T* pre = pre_.data() + e * source_.stride;
        const T *from = source_[entry.atom], *to = target_[i];
        for (int c = 0; c < source_.width; c++) pre[c] = from[c] + to[c];
        if (bonds_.with_rows()) add_bonds(entry, bonds_.at(0), bonds_.stride(), source_.width, pre);
        for (int h = 0, c = 0; h < heads_; h++, c += size()) scores_[e * stride_ + h] = product_leaky(att_ + c, pre + c, slope_, size());
    }

    // Adds an entry's row of `rows`: that of its bond, or the mean of the others.
    void add_bonds(const Entry& entry, const T* rows, ptrdiff_t stride, int columns, T* to) {
        if (entry.bond >= 0) return add(T(1), rows + bonds_.index_of(entry.bond) * stride, columns, to);
        for (int e = 0; e + 1 < count(); e++) add(T(1) / T(count() - 1), rows + bonds_.index_of(entries_[e].bond) * stride, columns, to);
    }
    // Adds the gradient of an entry's row to `rows`.
    void to_bonds(const Entry& entry, const T* from, int columns, T* rows, ptrdiff_t stride) {
        if (entry.bond >= 0) return add(T(1), from, columns, rows + bonds_.index_of(entry.bond) * stride);
        for (int e = 0; e + 1 < count(); e++) add(T(1) / T(count() - 1), from, columns, rows + bonds_.index_of(entries_[e].bond) * stride);
    }

    // Returns the numbers of an entry's or atom's heads from number h on.
    Vec<T> at_heads(const std::vector<T>& numbers, int row, int h) const { return load_any(numbers.data() + row * stride_ + h); }

    // Stores and returns the weights exp(score - largest) * scale of an entry's heads from number h on.
    Vec<T> weigh(int e, int h, Vec<T> largest, Vec<T> scale = splat<T>(1)) {
        const Vec<T> weight = exp<T>(at_heads(scores_, e, h) - largest) * scale;
        store_any(weights_.data() + e * stride_ + h, weight);
        return weight;
    }

    void drop_entries(int i) {
        factors_.assign(size_t(count()) * stride_, T(1));
        for (int e = 0; e < count(); e++) {
            const bool own = entries_[e].bond < 0;
            const int64_t row = own ? t_.tile.first_row + i : entries_[e].bond;
            dropout_.apply(uint32_t(row), heads_, kept_, factors_.data() + e * stride_, own);
        }
    }
    // Returns dropout's factors of an entry's heads.
    const T* factors(int e) {
        if (dropout_.active()) return factors_.data() + e * stride_;
        if (factors_.empty()) factors_.assign(heads_, T(1));
        return factors_.data();
    }

    const TileStep<T>& t_;
    const Instruction& step_;
    const AttendOptions& it_;
    const int heads_, stride_;  // stride_: numbers of a row's heads, in whole vectors
    const TileRows<T> source_, target_;
    const TileBonds<T> bonds_;
    const Size size_;
    const T slope_, kept_;
    const Dropout dropout_;
    const T *att_, *att_target_, *att_bonds_;
    std::vector<Entry> entries_;                                       // of an atom
    std::vector<T> scores_, weights_, pre_, factors_;                  // of the entries
    std::vector<T> from_, to_, of_from_, of_to_;                       // GAT's, of the tile's atoms, and their gradients
    std::vector<T> row_scores_, of_row_scores_;                        // GAT's, of the rows of bonds, and their gradients
};

// Calls run with a tile's attention.
template <typename T, typename Run>
void with_attention(const TileStep<T>& t, const Instruction& step, const Run& run) {
    const int columns = t.rows(step.source).width / t.run.pass.attends[step.attend].heads;
    const auto with = [&](auto size) { run(TileAttention<T, decltype(size)>(t, step, size)); };
    const int number = columns < lanes<T> ? 0 : vectors<T>(columns);
    if (number == 1) with(InVectors<1>{columns});
    else if (number == 2) with(InVectors<2>{columns});
    else if (number == 3) with(InVectors<3>{columns});
    else if (columns == 8) with(Exactly<8>());
    else with(columns);
}

template <typename T>
[[gnu::noinline]] void attend_rows(const TileStep<T>& t, const Instruction& step) {
    with_attention(t, step, [](auto&& it) { it.forward(); });
}

template <typename T>
[[gnu::noinline]] void attend_gradient(const TileStep<T>& t, const Instruction& step) {
    with_attention(t, step, [](auto&& it) { it.backward(); });
}

}  // namespace MOLGCN_ISA
}  // namespace molgcn
