// Graph attention, one row of entries at a time: the row's scores, their softmax, and the weighted sum.
//
// An entry has the weight w and dropout's factor k; its row has the gradient g and mean = g . out. The gradient of the score is w (k g .
// source - mean), and that of the source is w k g. The score's gradient then goes to what the score was computed from.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attend.hpp"
#include "attention.hpp"
#include "chunks.hpp"
#include "memory.hpp"
#include "philox.hpp"
#include "prefetch.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

// A call whose heads have C channels. The compiler then knows C and turns short loops over channels into vectors. C = 0 stands for any
// number.
template <typename T, int C>
struct Sized : Attention<T> {
    explicit Sized(const Attention<T>& call) : Attention<T>(call) {}
    int size() const { return C > 0 ? C : this->channels; }
    int width() const { return this->heads * size(); }
};

// Computes the scores of rows and entries. Each thread has its own.
template <typename T, int C>
class Scores {
public:
    explicit Scores(const Sized<T, C>& call)
        : call_(call), slope_(call.negative_slope), dropout_(call.seed, 0, call.dropout), pre_(call.scores()), kept_(call.heads) {}

    // Returns the inputs of an entry's leaky relu, from its source's row, its target's row and its index. They stay until the next call.
    const T* pre(const T* source, const T* target, int32_t edge) {
        const int scores = call_.scores();
        const T* __restrict from = call_.att == nullptr ? source + call_.width() : source;
        T* __restrict to = pre_.data();
#pragma omp simd
        for (int k = 0; k < scores; k++) to[k] = from[k] + target[k];
        if (call_.edges != nullptr) add(T(1), call_.edges + int64_t{edge} * scores, scores, to);
        return to;
    }

    // Writes one score for each head, from what `pre` returned.
    void scores(const T* pre, T* score) const {
        for (int h = 0; h < call_.heads; h++) {
            if (call_.att == nullptr) {
                score[h] = pre[h] > 0 ? pre[h] : slope_ * pre[h];
                continue;
            }
            score[h] = product_leaky(call_.att + h * call_.size(), pre + h * call_.size(), slope_, call_.size());
        }
    }

    // Returns dropout's factors of an entry's heads, or null without dropout.
    const T* kept(int32_t edge) {
        if (!(call_.dropout > 0)) return nullptr;
        std::fill(kept_.begin(), kept_.end(), T(call_.dropout < 1 ? 1 : 0));
        dropout_.apply(uint32_t(edge), call_.heads, T(call_.dropout < 1 ? 1 / (1 - call_.dropout) : 0), kept_.data());
        return kept_.data();
    }

    T slope() const { return slope_; }

private:
    const Sized<T, C>& call_;
    T slope_;
    Dropout dropout_;
    std::vector<T> pre_, kept_;
};

template <int C, typename T>
void attention_forward(const Sized<T, C>& call, const Walk& by_target, T* out, T* softmax) {
    const int heads = call.heads, channels = call.size(), width = call.width();
    const int32_t last = by_target.rowptr[call.num_targets] - 1;
    Chunks(by_target.rowptr, call.num_targets, many).run(call.num_threads, [&] {
        return [&, scores = Scores<T, C>(call), weight = std::vector<T>(), largest = std::vector<T>(heads), total = std::vector<T>(heads)](
                   int64_t, int64_t first, int rows) mutable {
            for (int64_t i = first; i < first + rows; i++) {
                const int32_t begin = by_target.rowptr[i], count = by_target.rowptr[i + 1] - begin;
                weight.resize(std::max(weight.size(), size_t(count) * heads));
                std::fill(largest.begin(), largest.end(), -std::numeric_limits<T>::infinity());
                std::fill(total.begin(), total.end(), T(0));
                for (int32_t k = 0; k < count; k++) {
                    T* score = weight.data() + size_t(k) * heads;
                    const int32_t entry = begin + k;
                    prefetch_row(call.source + by_target.col[std::min(entry + ahead, last)] * call.source_stride, int(call.source_stride));
                    const T* source = call.source + by_target.col[entry] * call.source_stride;
                    scores.scores(scores.pre(source, call.targets + i * call.target_stride, by_target.edge[entry]), score);
                    for (int h = 0; h < heads; h++) largest[h] = score[h] > largest[h] ? score[h] : largest[h];
                }
                T* to = out + i * width;
                zero(to, width);
                for (int32_t k = 0; k < count; k++) {
                    T* used = weight.data() + size_t(k) * heads;
                    for (int h = 0; h < heads; h++) {
                        used[h] = std::exp(used[h] - largest[h]);
                        total[h] += used[h];
                    }
                    if (const T* kept = scores.kept(by_target.edge[begin + k])) {
                        for (int h = 0; h < heads; h++) used[h] *= kept[h];
                    }
                    const T* source = call.source + by_target.col[begin + k] * call.source_stride;
                    for (int h = 0; h < heads; h++) add(used[h], source + h * channels, channels, to + h * channels);
                }
                for (int h = 0; h < heads; h++) {
                    const T scale = count == 0 ? T(0) : 1 / total[h];
                    for (int c = 0; c < channels; c++) to[h * channels + c] *= scale;
                    softmax[2 * (i * heads + h)] = largest[h];
                    softmax[2 * (i * heads + h) + 1] = scale;
                }
            }
        };
    });
}

// Sums, for each source, over the entries that leave it. Writes the gradients of the source and the edges, and every score's gradient.
template <int C, typename T>
void attention_sources(const Sized<T, C>& call, const Walk& by_source, const AttentionGradients<T>& grads, const T* means) {
    const int heads = call.heads, channels = call.size(), width = call.width(), scores_width = call.scores();
    const int32_t last = by_source.rowptr[call.num_sources] - 1;
    Chunks(by_source.rowptr, call.num_sources, many).run(call.num_threads, [&] {
        return [&, scores = Scores<T, C>(call), of_score = std::vector<T>(heads), used = std::vector<T>(heads)](int64_t, int64_t first,
                                                                                                           int rows) mutable {
            for (int64_t j = first; j < first + rows; j++) {
                const T* source = call.source + j * call.source_stride;
                T* grad_source = grads.source + j * call.source_stride;
                zero(grad_source, width + (call.att == nullptr ? heads : 0));
                for (int32_t entry = by_source.rowptr[j]; entry < by_source.rowptr[j + 1]; entry++) {
                    const int64_t i = by_source.col[entry];
                    const int32_t edge = by_source.edge[entry];
                    const int64_t later = by_source.col[std::min(entry + ahead, last)];
                    prefetch_row(grads.grad_out + later * width, width);
                    prefetch_row(call.targets + later * call.target_stride, scores_width);
                    prefetch_row(grads.softmax + 2 * later * heads, 2 * heads);
                    prefetch_row(means + later * heads, heads);
                    prefetch_row(grads.scores + int64_t{by_source.edge[std::min(entry + ahead, last)]} * heads, heads);
                    const T *grad = grads.grad_out + i * width, *softmax = grads.softmax + 2 * i * heads;
                    const T* pre = scores.pre(source, call.targets + i * call.target_stride, edge);
                    scores.scores(pre, of_score.data());
                    const T* kept = scores.kept(edge);
                    for (int h = 0; h < heads; h++) {
                        const T weight = std::exp(of_score[h] - softmax[2 * h]) * softmax[2 * h + 1], factor = kept == nullptr ? T(1) : kept[h];
                        const T of_weight = product(grad + h * channels, source + h * channels, channels);
                        used[h] = weight * factor;
                        of_score[h] = weight * (factor * of_weight - means[i * heads + h]);
                    }
                    for (int h = 0; h < heads; h++) add(used[h], grad + h * channels, channels, grad_source + h * channels);
                    if (call.att == nullptr) {
                        for (int h = 0; h < heads; h++) of_score[h] *= pre[h] > 0 ? T(1) : scores.slope();
                        add(T(1), of_score.data(), heads, grad_source + width);
                    } else {
                        for (int h = 0; h < heads; h++) {
                            const int k = h * channels;
                            through_leaky<true>(of_score[h], call.att + k, pre + k, scores.slope(), channels, grad_source + k);
                            if (grads.edges == nullptr) continue;
                            T* of_edge = grads.edges + int64_t{edge} * width + k;
                            through_leaky<false>(of_score[h], call.att + k, pre + k, scores.slope(), channels, of_edge);
                        }
                    }
                    std::copy(of_score.begin(), of_score.end(), grads.scores + int64_t{edge} * heads);
                }
            }
        };
    });
}

// Sums, for each target, over its entries. Writes the gradient of the target and, chunk by chunk, that of att.
template <int C, typename T>
void attention_targets(const Sized<T, C>& call, const Walk& by_target, const AttentionGradients<T>& grads) {
    const int heads = call.heads, channels = call.size(), width = call.width(), columns = call.scores();
    const int32_t last = by_target.rowptr[call.num_targets] - 1;
    const Chunks chunks(by_target.rowptr, call.num_targets, 128);
    Array<T> partials(call.att == nullptr ? 0 : chunks.count * width);
    if (call.att != nullptr) zero(partials.data(), chunks.count * width);
    chunks.run(call.num_threads, [&] {
        return [&, scores = Scores<T, C>(call)](int64_t chunk, int64_t first, int rows) mutable {
            for (int64_t i = first; i < first + rows; i++) {
                T* to = grads.targets + i * call.target_stride;
                zero(to, columns);
                for (int32_t entry = by_target.rowptr[i]; entry < by_target.rowptr[i + 1]; entry++) {
                    const int32_t edge = by_target.edge[entry];
                    const T* of_score = grads.scores + int64_t{edge} * heads;
                    __builtin_prefetch(grads.scores + int64_t{by_target.edge[std::min(entry + ahead, last)]} * heads);
                    if (call.att == nullptr) {
                        add(T(1), of_score, heads, to);
                        continue;
                    }
                    prefetch_row(call.source + by_target.col[std::min(entry + ahead, last)] * call.source_stride, width);
                    const T* source = call.source + by_target.col[entry] * call.source_stride;
                    const T* pre = scores.pre(source, call.targets + i * call.target_stride, edge);
                    for (int h = 0; h < heads; h++) {
                        const int k = h * channels;
                        through_leaky<true>(of_score[h], call.att + k, pre + k, scores.slope(), channels, to + k);
                        through_leaky<true>(of_score[h], pre + k, pre + k, scores.slope(), channels, partials.data() + chunk * width + k);
                    }
                }
            }
        };
    });
    if (call.att == nullptr) return;
    zero(grads.att, width);
    for (int64_t chunk = 0; chunk < chunks.count; chunk++) {
        for (int k = 0; k < width; k++) grads.att[k] += partials[chunk * width + k];
    }
}

template <int C, typename T>
void attention_backward(const Sized<T, C>& call, const Walk& by_target, const Walk& by_source, const AttentionGradients<T>& grads) {
    const int channels = call.size();
    const int64_t rows = call.num_targets * call.heads;
    const Array<T> means(rows);
#pragma omp parallel for num_threads(call.num_threads)
    for (int64_t row = 0; row < rows; row++) means[row] = product(grads.grad_out + row * channels, grads.out + row * channels, channels);
    attention_sources(call, by_source, grads, means.data());
    attention_targets(call, by_target, grads);
}

// Calls run with the call, with its number of channels known to the compiler where that is worth it.
template <typename T, typename Run>
void with_size(const Attention<T>& call, const Run& run) {
    if (call.channels == 8) run(Sized<T, 8>(call));
    else if (call.channels == 16) run(Sized<T, 16>(call));
    else run(Sized<T, 0>(call));
}

}  // namespace MOLGCN_ISA
}  // namespace molgcn
