// Norm, relu and dropout of one tile's rows, the scaling of rows to length 1, and the gradients of these.
#pragma once

#include "gather.hpp"
#include "tile_linear.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

// The mean and 1 / deviation of one row.
template <typename T>
struct RowMoments {
    T mean, rstd;

    RowMoments() : mean(0), rstd(0) {}
    RowMoments(const T* row, int width, T eps) {
        T total = 0, squares = 0;
        int c = 0;
        Vec<T> sums{};
        for (; c + lanes<T> <= width; c += lanes<T>) sums += load(row + c);
        for (; c < width; c++) total += row[c];
        mean = (sum<T>(sums) + total) / width;
        Vec<T> deviations{};
        for (c = 0; c + lanes<T> <= width; c += lanes<T>) {
            const Vec<T> delta = load(row + c) - mean;
            deviations += delta * delta;
        }
        for (; c < width; c++) squares += (row[c] - mean) * (row[c] - mean);
        rstd = T(1) / std::sqrt((sum<T>(deviations) + squares) / width + eps);
    }
};

// The normalised vectors of a row, and the norm's output. `norm` is null where there is no norm.
template <typename T>
struct NormedRow {
    const Norm<T>* norm;
    RowMoments<T> row;

    Vec<T> normalised(const T* x, int c) const {
        return norm->layer ? (load(x + c) - row.mean) * row.rstd : (load(x + c) - load(norm->mean + c)) * load(norm->rstd + c);
    }

    Vec<T> operator()(const T* x, int c) const {
        if (norm == nullptr) return load(x + c);
        if (norm->layer) return normalised(x, c) * load(norm->gamma + c) + load(norm->beta + c);
        return (load(x + c) - load(norm->mean + c)) * load(norm->scale + c) + load(norm->beta + c);
    }
};

template <typename T>
NormedRow<T> normed_row(const TileStep<T>& t, const Instruction& step, const T* x, int width) {
    const Norm<T>* norm = step.norm < 0 ? nullptr : &t.parameters.norm(step.norm);
    if (norm != nullptr && norm->layer) return {norm, RowMoments<T>(x, width, T(t.run.eps))};
    return {norm, RowMoments<T>()};
}

// Computes out = dropout(relu(norm(x))) + a.
template <typename T>
void finish_rows(const TileStep<T>& t, const Instruction& step) {
    const TileRows<T> source = t.rows(step.source), out = t.rows(step.out), add = t.rows(step.add);
    for (int i = 0; i < out.count; i++) {
        const NormedRow<T> normed = normed_row(t, step, source[i], source.width);
        for (int c = 0; c < out.stride; c += lanes<T>) {
            const Vec<T> v = normed(source[i], c);
            store(out[i] + c, step.relu ? relu<T>(v) : v);
        }
    }
    if (step.site >= 0) drop(t, step.site, out);
    for (ptrdiff_t at = 0; add && at < out.count * out.stride; at += lanes<T>) store(out.data + at, load(out.data + at) + load(add.data + at));
}

// Writes the gradient of dropout's input.
template <typename T>
void dropout_gradient(const TileStep<T>& t, const Instruction& step) {
    const TileRows<T> grad = t.rows(step.grad), out = t.rows(step.out);
    std::memcpy(out.data, grad.data, out.count * out.stride * sizeof(T));
    drop(t, step.site, out);
}

// Returns the gradient of the norm's output, at one vector.
template <typename T>
inline Vec<T> through_relu(const Instruction& step, const NormedRow<T>& normed, const T* x, const T* grad, int c) {
    return step.relu ? where_positive<T>(normed(x, c), load(grad + c)) : load(grad + c);
}

// Adds the gradients of the norm's weight and bias.
template <typename T>
void add_norm_sums(const TileStep<T>& t, const Instruction& step) {
    const NormOptions& options = t.run.pass.norms[step.norm];
    const TileRows<T> source = t.rows(step.source), grad = t.rows(step.grad);
    T *gamma = t.sums.parameter(t.partial, options.weight), *beta = t.sums.parameter(t.partial, options.bias);
    for (int i = 0; i < grad.count; i++) {
        const T* x = source[i];
        const NormedRow<T> normed = normed_row(t, step, x, source.width);
        for (int c = 0; c < grad.stride; c += lanes<T>) {
            const Vec<T> g = through_relu(step, normed, x, grad[i], c);
            store(gamma + c, load(gamma + c) + g * normed.normalised(x, c));
            store(beta + c, load(beta + c) + g);
        }
    }
}

// Writes the gradient of the source. Another step gives that of the norm's weight and bias.
template <typename T>
void finish_gradient(const TileStep<T>& t, const Instruction& step) {
    const TileRows<T> source = t.rows(step.source), grad = t.rows(step.grad), out = t.rows(step.out);
    const bool of_batch = step.norm >= 0 && t.run.moments != nullptr;
    const int width = source.width;
    for (int i = 0; i < grad.count; i++) {
        const T* x = source[i];
        T* to = out[i];
        const NormedRow<T> normed = normed_row(t, step, x, width);
        const Norm<T>* norm = normed.norm;
        if (norm != nullptr && norm->layer) {
            Vec<T> totals{}, weighteds{};
            for (int c = 0; c < out.stride; c += lanes<T>) {
                const Vec<T> g = through_relu(step, normed, x, grad[i], c) * load(norm->gamma + c);
                store(to + c, g);
                totals += g;
                weighteds += g * normed.normalised(x, c);
            }
            const T total = sum<T>(totals) / width, weighted = sum<T>(weighteds) / width;
            for (int c = 0; c < out.stride; c += lanes<T>) {
                store(to + c, normed.row.rstd * (load(to + c) - total - normed.normalised(x, c) * weighted));
            }
            zero(to + width, out.stride - width);
            continue;
        }
        for (int c = 0; c < out.stride; c += lanes<T>) {
            Vec<T> g = through_relu(step, normed, x, grad[i], c);
            if (of_batch) g -= load(norm->mean_grad + c) + normed.normalised(x, c) * load(norm->mean_weighted + c);
            if (norm != nullptr) g *= load(norm->scale + c);
            store(to + c, g);
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
