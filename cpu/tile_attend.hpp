// Attention of one tile's atoms to their neighbours and themselves, and its gradients. See Attend in molgcn/ops/layer_network/steps.py.
//
// An entry has the weight w and dropout's factor k; its atom has the gradient g. The gradient of a score is w (k g . source - mean), where
// mean is the sum of w k g . source over the entries, and that of the source is w k g.
#pragma once

#include <algorithm>

#include "tile_scores.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

// A tile's attention.
template <typename T>
class TileAttention {
public:
    TileAttention(const TileStep<T>& t, const Instruction& step)
        : t_(t), step_(step), it_(t.run.pass.attends[step.attend]), s_(t, step), heads_(s_.heads), source_(s_.source), stride_(s_.stride),
          share_(it_.concat ? T(1) : T(1) / T(it_.heads)), kept_(T(1 / (1 - double_of(it_.rate)))),
          dropout_(t.run.seed, it_.dropout, double_of(it_.rate)), parts_(heads_.size()), row_(source_.stride), weights_(s_.entries.size(), stride_),
          factors_(dropout_.active() ? s_.entries.size() : 0, stride_), atom_(2, stride_) {
        zero(row_.data(), source_.stride);
    }

    void forward() {
        const TileRows<T> out = t_.rows(step_.out), softmax = t_.rows(step_.second);
        const T* bias = t_.parameters.vector(step_.bias);
        T *largest = atom_[0], *scale = atom_[1];
        for (int i = 0; i < out.count; i++) {
            take_entries(i);
            for (int h = 0; h < stride_; h += lanes<T>) {
                Vec<T> most = s_.scores.at(0, h), sum{};
                for (int e = 1; e < count(); e++) {
                    const Vec<T> score = s_.scores.at(e, h);
                    most = score > most ? score : most;
                }
                for (int e = 0; e < count(); e++) {
                    const Vec<T> weight = exp<T>(s_.scores.at(e, h) - most);
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
                    const T *x = source_[s_.entries[e].atom] + column, *weights = weights_[e];
                    for (int p = 0; p < P; p++) sum[p] += heads_.spread(weights, column + p * lanes<T>) * load(x + p * lanes<T>);
                }
                for (int p = 0; p < P; p++) store(to + column + p * lanes<T>, sum[p]);
            });
            if (whole) continue;
            for (int c = 0; c < out.stride; c += lanes<T>) store(out[i] + c, load(bias + c));
            for (int h = 0; h < it_.heads; h++) add(T(1), to + h * s_.size, s_.size, out[i]);
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
                const T* x = source_[s_.entries[e].atom];
                heads_.sums(parts_.data(), weights_[e], [=](int column) { return load_any(x + column); });
            }
            for (int h = 0; h < stride_; h += lanes<T>) {
                Vec<T> all{};
                for (int e = 0; e < count(); e++) {
                    const Vec<T> weight = exp<T>(s_.scores.at(e, h) - load_any(largest + h)) * load_any(scale + h), k = factor(e, h), along = k * weights_.at(e, h);
                    all += weight * along;
                    store_any(s_.scores[e] + h, along);
                    store_any(weights_[e] + h, weight);
                }
                for (int e = 0; e < count(); e++) {
                    const Vec<T> weight = weights_.at(e, h), of_score = weight * (s_.scores.at(e, h) - all);
                    store_any(s_.scores[e] + h, s_.through_leaky(e, h, of_score));
                    store_any(weights_[e] + h, weight * factor(e, h));
                }
            }
            if (!s_.is_v2()) s_.add_gradients(i);
            each_panel<T>(source_.stride, [&](auto panel, int column) {
                if (s_.is_v2()) s_.through_scores(panel, i, column, weights_, g, of_source, of_target, sums);
                else if (of_source) to_sources(panel, column, g, of_source);
            });
            if (s_.is_v2() && sums != nullptr) s_.share_own_bond(sums);
        }
        if (!s_.is_v2()) s_.end_scores(of_source, sums);
    }

private:
    int count() const { return s_.count; }
    void take_entries(int i) {
        s_.take(i);
        if (dropout_.active()) drop_entries(i);
    }
    // Returns dropout's factors of an entry's heads, times the share that a head has in the result.
    Vec<T> factor(int e, int h) { return dropout_.active() ? share_ * factors_.at(e, h) : splat<T>(share_); }

    // Returns the gradient of the heads side by side, from that of the result.
    const T* whole_gradient(const T* grad) {
        if (it_.concat) return grad;
        for (int h = 0; h < it_.heads; h++) std::memcpy(row_.data() + h * s_.size, grad, s_.size * sizeof(T));
        return row_.data();
    }

    // Adds the gradient that an atom's entries hand on to their sources, w k g.
    template <typename Panel>
    void to_sources(Panel, int column, const T* grad, const TileRows<T>& of_source) {
        constexpr int P = Panel::value;
        Vec<T> g[P];
        for (int p = 0; p < P; p++) g[p] = load(grad + column + p * lanes<T>);
        for (int e = 0; e < count(); e++) {
            T* to = of_source[s_.entries[e].atom] + column;
            const T* weights = weights_[e];
            for (int p = 0; p < P; p++) store(to + p * lanes<T>, load(to + p * lanes<T>) + heads_.spread(weights, column + p * lanes<T>) * g[p]);
        }
    }

    void drop_entries(int i) {
        for (int e = 0; e < count(); e++) {
            const bool own = s_.entries[e].bond < 0;
            const int64_t row = own ? t_.tile.first_row + i : s_.entries[e].bond;
            std::fill_n(factors_[e], stride_, T(1));
            dropout_.apply(uint32_t(row), it_.heads, kept_, factors_[e], own);
        }
    }

    const TileStep<T>& t_;
    const Instruction& step_;
    const AttendOptions& it_;
    TileScores<T> s_;
    const Heads<T>& heads_;
    const TileRows<T> source_;
    const int stride_;  // numbers of a row's heads, in whole vectors
    const T share_, kept_;
    const Dropout dropout_;
    const Array<T> parts_, row_;
    HeadNumbers<T> weights_, factors_;  // of the entries
    HeadNumbers<T> atom_;               // an atom's largest scores and reciprocal sums
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
