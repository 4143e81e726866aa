// Norm, activation and dropout of one tile's rows, the scaling of rows to length 1, and the gradients of these.
#pragma once

#include "epilogue.hpp"
#include "gather.hpp"
#include "tile_linear.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

// The norm of an instruction, or none. A copy of the norm's addresses, since stores to rows could change them for all that the compiler knows.
template <typename T>
class RowNorm {
public:
    static constexpr int block = 16;

    RowNorm(const TileStep<T>& t, const Instruction& step)
        : some_(step.norm >= 0), eps_(T(t.run.eps)), norm_(some_ ? t.parameters.norm(step.norm) : Norm<T>{}), layer_(some_ && norm_.layer) {}

    bool some() const { return some_; }
    bool layer() const { return layer_; }
    const Norm<T>& operator*() const { return norm_; }

    Vec<T> normalised(const RowMoments<T>& row, const T* x, int c) const {
        return layer_ ? row.normalised(x, c) : (load(x + c) - load(norm_.mean + c)) * load(norm_.rstd + c);
    }

    // Returns a vector of the norm's output.
    Vec<T> output(const RowMoments<T>& row, const T* x, int c) const {
        if (!some_) return load(x + c);
        if (layer_) return normalised(row, x, c) * load(norm_.gamma + c) + load(norm_.beta + c);
        return NormedColumn<T>(norm_, c)(load(x + c));
    }

    // Writes the moments of up to `block` rows from the first on, where a layer norm needs them, and returns the row after these. Several
    // rows' are computed at the same time, as each waits for its sums.
    int take(const TileRows<T>& rows, int first, RowMoments<T>* moments) const {
        const int last = first + block < rows.count ? first + block : rows.count;
        for (int i = first; layer_ && i < last; i++) moments[i - first] = RowMoments<T>(rows[i], rows.width, eps_);
        return last;
    }

private:
    bool some_;
    T eps_;
    Norm<T> norm_;
    bool layer_;
};

// Writes to `out` what use(at, vector) makes of each vector of the norm of `source`, at `at` in the rows' memory.
template <typename T, typename Use>
inline void norm_rows(const RowNorm<T>& norm, const TileRows<T>& source, const TileRows<T>& out, Use use) {
    RowMoments<T> moments[norm.block];
    for (int first = 0, last; first < source.count; first = last) {
        last = norm.take(source, first, moments);
        for (int i = first; i < last; i++) {
            const RowMoments<T> row = moments[i - first];
            for (int c = 0; c < out.stride; c += lanes<T>) store(out[i] + c, use(i * out.stride + c, norm.output(row, source[i], c)));
        }
    }
}

// Replaces each vector of `rows`, at `at` in their memory, by use(at, vector).
template <typename T, typename Use>
inline void change(const TileRows<T>& rows, Use use) {
    for (ptrdiff_t at = 0; at < rows.count * rows.stride; at += lanes<T>) store(rows.data + at, use(at, load(rows.data + at)));
}

// Computes out = dropout(act(norm(x))) + a.
template <typename T>
void finish_rows(const TileStep<T>& t, const Instruction& step) {
    const TileRows<T> source = t.rows(step.source), out = t.rows(step.out), add = t.rows(step.add);
    const RowNorm<T> norm(t, step);
    const bool has_relu = step.activation == of_relu;
    const bool at_once = add && step.activation <= of_relu && step.site < 0;
    norm_rows(norm, source, out, [=](ptrdiff_t at, Vec<T> v) {
        if (has_relu) v = relu<T>(v);
        return at_once ? v + load(add.data + at) : v;
    });
    if (at_once) return;
    if (step.activation > of_relu) change(out, [=](ptrdiff_t, Vec<T> v) { return activated<T>(step.activation, v); });
    if (step.site >= 0) drop(t, step.site, step.out);
    if (add) change(out, [=](ptrdiff_t at, Vec<T> v) { return v + load(add.data + at); });
}

// Writes the gradient of an activation's input from that of the output of dropout, or of dropout's input where no activation is given.
template <typename T>
void activation_gradient(const TileStep<T>& t, const Instruction& step) {
    const TileRows<T> source = t.rows(step.source), grad = t.rows(step.grad), out = t.rows(step.out);
    if (!source) {
        std::memcpy(out.data, grad.data, out.count * out.stride * sizeof(T));
        return drop(t, step.site, step.out);
    }
    norm_rows(RowNorm<T>(t, step), source, out, [=](ptrdiff_t, Vec<T> v) { return v; });
    change(out, [=](ptrdiff_t at, Vec<T> v) { return slope<T>(step.activation, v) * load(grad.data + at); });
    if (step.site >= 0) drop(t, step.site, step.out);
}

// Returns the gradient of the norm's output, at one vector.
template <typename T>
inline Vec<T> through_relu(bool has_relu, const RowNorm<T>& norm, const RowMoments<T>& row, const T* x, const T* grad, int c) {
    return has_relu ? where_positive<T>(norm.output(row, x, c), load(grad + c)) : load(grad + c);
}

// Adds the gradients of the norm's weight and bias.
template <typename T>
void add_norm_sums(const TileStep<T>& t, const Instruction& step) {
    const NormOptions& options = t.run.pass.norms[step.norm];
    const TileRows<T> source = t.rows(step.source), grad = t.rows(step.grad);
    T *gamma = t.sums.parameter(t.partial, options.weight), *beta = t.sums.parameter(t.partial, options.bias);
    const RowNorm<T> norm(t, step);
    const bool has_relu = step.activation == of_relu;
    RowMoments<T> moments[norm.block];
    for (int first = 0, last; first < source.count; first = last) {
        last = norm.take(source, first, moments);
        for (int c = 0; c < grad.stride; c += lanes<T>) {
            Vec<T> weighted = load(gamma + c), total = load(beta + c);
            for (int i = first; i < last; i++) {
                const RowMoments<T> row = moments[i - first];
                const Vec<T> g = through_relu(has_relu, norm, row, source[i], grad[i], c);
                weighted += g * norm.normalised(row, source[i], c);
                total += g;
            }
            store(gamma + c, weighted);
            store(beta + c, total);
        }
    }
}

// Writes the gradient of the source. Another step gives that of the norm's weight and bias.
template <typename T>
void finish_gradient(const TileStep<T>& t, const Instruction& step) {
    const TileRows<T> source = t.rows(step.source), grad = t.rows(step.grad), out = t.rows(step.out);
    const RowNorm<T> norm(t, step);
    const Norm<T> of = *norm;
    const bool has_relu = step.activation == of_relu, of_batch = norm.some() && t.run.moments != nullptr;
    const int width = source.width;
    RowMoments<T> moments[norm.block];
    for (int first = 0, last; first < source.count; first = last) {
        last = norm.take(source, first, moments);
        for (int i = first; i < last; i++) {
            const T* x = source[i];
            T* to = out[i];
            const RowMoments<T> row = moments[i - first];
            if (norm.layer()) {
                through_row_norm(row, x, width, out.stride, to,
                                 [&](int c) { return through_relu(has_relu, norm, row, x, grad[i], c) * load(of.gamma + c); });
                continue;
            }
            for (int c = 0; c < out.stride; c += lanes<T>) {
                Vec<T> g = through_relu(has_relu, norm, row, x, grad[i], c);
                if (of_batch) g -= load(of.mean_grad + c) + norm.normalised(row, x, c) * load(of.mean_weighted + c);
                if (norm.some()) g *= load(of.scale + c);
                store(to + c, g);
            }
        }
    }
    end_gradient(t, step, false);
}

constexpr double shortest = 1e-12;  // as torch.nn.functional.normalize

template <typename T>
void normalize_rows(const TileStep<T>& t, const Instruction& step) {
    const TileRows<T> source = t.rows(step.source), out = t.rows(step.out);
    for (int i = 0; i < out.count; i++) {
        const T length = std::sqrt(dot(source[i], source[i], source.width)), scale = length > T(shortest) ? length : T(shortest);
        for (int c = 0; c < out.stride; c += lanes<T>) store(out[i] + c, load(source[i] + c) / scale);
    }
}

template <typename T>
void normalize_gradient(const TileStep<T>& t, const Instruction& step) {
    const TileRows<T> source = t.rows(step.source), grad = t.rows(step.grad), out = t.rows(step.out);
    for (int i = 0; i < out.count; i++) {
        const T length = std::sqrt(dot(source[i], source[i], source.width)), scale = length > T(shortest) ? length : T(shortest);
        const T along = length > T(shortest) ? dot(grad[i], source[i], source.width) / scale : T(0);
        for (int c = 0; c < out.stride; c += lanes<T>) store(out[i] + c, (load(grad[i] + c) - load(source[i] + c) / scale * along) / scale);
    }
    end_gradient(t, step, false);
}

}  // namespace MOLGCN_ISA
}  // namespace molgcn
