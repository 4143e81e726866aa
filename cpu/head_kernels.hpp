// The head and its loss, block after block of molecules in one core's cache. One thread suffices: the layers' work is a thousand times as
// much.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "gcn_network.hpp"
#include "gemm.hpp"
#include "head_loss.hpp"
#include "memory.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

// Returns the term that a prediction and its target add to the loss.
template <typename T>
T loss_term(Loss loss, T prediction, T target, T delta) {
    const T d = prediction - target, size = std::abs(d);
    if (loss == Loss::mse) return d * d;
    if (loss == Loss::l1) return size;
    return size < delta ? T(0.5) * d * d : delta * (size - T(0.5) * delta);
}

// Returns the term's derivative by the prediction.
template <typename T>
T loss_derivative(Loss loss, T prediction, T target, T delta) {
    const T d = prediction - target;
    if (loss == Loss::mse) return 2 * d;
    const T sign = d > 0 ? T(1) : d < 0 ? T(-1) : d;  // keeps NaN
    if (loss == Loss::l1) return sign;
    return std::abs(d) < delta ? d : delta * sign;
}

template <typename T>
class Head {
public:
    explicit Head(const HeadLoss<T>& head) : h_(head), plane_((block + slack_rows) * widest()), planes_(2 * plane_) { zero(planes_.data(), 2 * plane_); }

    void forward() const {
        const Array<T> packed(largest_matrix());
        double total = 0, known = 0;
        each_block([&](int64_t first, int rows) {
            const T* in = load_rows(h_.x + first * h_.widths[0], h_.widths[0], rows, plane(0));
            for (int i = 0; i < h_.num_linears; i++) {
                T* out = plane(i + 1);
                apply(i, in, rows, packed.data(), out);
                if (i + 1 < h_.num_linears) store_rows(out, width(i + 1), rows, hidden(i + 1) + first * h_.widths[i + 1]);
                in = out;
            }
            add_terms(in, first, rows, total, known);
        });
        h_.sums[0] = total;
        h_.sums[1] = known;
        *h_.mean_loss = T(total / std::max(known, 1.0));
    }

    void backward(const HeadGradients<T>& grads) const {
        const Array<T> packed(largest_matrix()), inputs(plane_), sums(sum_elements());
        zero(sums.data(), sum_elements());
        const T scale = grads.loss / T(std::max(h_.sums[1], 1.0));
        const int last = h_.num_linears;
        each_block([&](int64_t first, int rows) {
            T* grad = plane(last);
            load_rows(h_.derivatives + first * h_.widths[last], h_.widths[last], rows, grad);
            for (int64_t i = 0; i < int64_t{rows} * stride(last); i++) grad[i] *= scale;
            T* sum = sums.data() + sum_elements();
            for (int i = last - 1; i >= 0; i--) {
                const T* in = load_rows((i > 0 ? hidden(i) : h_.x) + first * h_.widths[i], h_.widths[i], rows, inputs.data());
                sum -= sum_elements(i);
                add_sums(i, grad, in, rows, sum);
                T* grad_in = plane(i);
                propagate(i, grad, rows, packed.data(), grad_in);
                if (i > 0) gate(grad_in, in, int64_t{rows} * stride(i));
                grad = grad_in;
            }
            store_rows(grad, width(0), rows, grads.x + first * h_.widths[0]);
        });
        const T* sum = sums.data();
        for (int i = 0; i < last; i++) {
            store_rows(sum, width(i), width(i + 1), grads.weights[i], stride(i));
            std::copy(sum + int64_t{width(i + 1)} * stride(i), sum + int64_t{width(i + 1)} * stride(i) + width(i + 1), grads.biases[i]);
            sum += sum_elements(i);
        }
    }

private:
    static constexpr int block = 64;

    int width(int i) const { return int(h_.widths[i]); }
    int stride(int i) const { return row_stride<T>(width(i)); }
    T* plane(int i) const { return planes_.data() + i % 2 * plane_; }

    int64_t widest() const {
        int most = 0;
        for (int i = 0; i <= h_.num_linears; i++) most = std::max(most, stride(i));
        return most;
    }

    int64_t largest_matrix() const {
        int64_t most = 0;
        for (int i = 0; i < h_.num_linears; i++) most = std::max(most, int64_t{stride(i)} * stride(i + 1));
        return most;
    }

    int64_t sum_elements(int i) const { return int64_t{width(i + 1)} * stride(i) + stride(i + 1); }

    int64_t sum_elements() const {
        int64_t total = 0;
        for (int i = 0; i < h_.num_linears; i++) total += sum_elements(i);
        return total;
    }

    // Returns the output of map i - 1, i > 0.
    T* hidden(int i) const {
        T* at = h_.hidden;
        for (int j = 1; j < i; j++) at += h_.num_graphs * h_.widths[j];
        return at;
    }

    template <typename F>
    void each_block(const F& f) const {
        for (int64_t first = 0; first < h_.num_graphs; first += block) f(first, int(std::min<int64_t>(block, h_.num_graphs - first)));
    }

    // Copies rows to cache lines and fills the rest of each with zeros.
    const T* load_rows(const T* from, int64_t columns, int rows, T* to) const {
        const int to_stride = row_stride<T>(int(columns));
        for (int r = 0; r < rows; r++, from += columns, to += to_stride) {
            std::copy(from, from + columns, to);
            std::fill(to + columns, to + to_stride, T(0));
        }
        return to - int64_t{rows} * to_stride;
    }

    static void store_rows(const T* from, int columns, int rows, T* to, int from_stride = 0) {
        if (from_stride == 0) from_stride = row_stride<T>(columns);
        for (int r = 0; r < rows; r++) std::copy(from + int64_t{r} * from_stride, from + int64_t{r} * from_stride + columns, to + int64_t{r} * columns);
    }

    // Computes out = in W^T + b, and relu unless the map is the last.
    void apply(int i, const T* in, int rows, T* packed, T* out) const {
        const int from = width(i), to = width(i + 1), out_stride = stride(i + 1);
        const T *weight = h_.weights[i], *bias = h_.biases[i];
        for (int k = 0; k < from; k++) {
            for (int o = 0; o < to; o++) packed[int64_t{k} * out_stride + o] = weight[int64_t{o} * from + k];
            std::fill(packed + int64_t{k} * out_stride + to, packed + int64_t{k + 1} * out_stride, T(0));
        }
        multiply<T>({in, stride(i), 1}, rows, to, from, packed, out_stride,
                    [=](int row, int column, Vec<T> v) { store(out + row * out_stride + column, v); });
        const bool activated = i + 1 < h_.num_linears;
        for (int r = 0; r < rows; r++) {
            for (int o = 0; o < to; o++) {
                const T v = out[r * out_stride + o] + bias[o];
                out[r * out_stride + o] = activated && v < 0 ? T(0) : v;
            }
        }
    }

    void add_terms(const T* prediction, int64_t first, int rows, double& total, double& known) const {
        const int targets = width(h_.num_linears), prediction_stride = stride(h_.num_linears);
        for (int r = 0; r < rows; r++) {
            for (int t = 0; t < targets; t++) {
                const int64_t at = (first + r) * targets + t;
                const bool there = h_.target[at] == h_.target[at];
                const T output = prediction[r * prediction_stride + t], standard = (h_.target[at] - h_.mean[t]) / h_.std[t];
                h_.derivatives[at] = there ? loss_derivative(h_.loss, output, standard, h_.delta) : T(0);
                if (!there) continue;
                total += loss_term(h_.loss, output, standard, h_.delta);
                known += 1;
            }
        }
    }

    // Adds the gradients of map i's weight [out, stride] and bias to `sum`.
    void add_sums(int i, const T* grad, const T* in, int rows, T* sum) const {
        const int in_stride = stride(i), grad_stride = stride(i + 1), out = width(i + 1);
        multiply<T>({grad, 1, grad_stride}, out, width(i), rows, in, in_stride, [=](int row, int column, Vec<T> v) {
            T* at = sum + row * in_stride + column;
            store(at, load(at) + v);
        });
        T* bias = sum + int64_t{out} * in_stride;
        for (int column = 0; column < grad_stride; column += lanes<T>) {
            Vec<T> total{};
            for (int r = 0; r < rows; r++) total += load(grad + r * grad_stride + column);
            for (int c = column; c < std::min(column + lanes<T>, out); c++) bias[c] += total[c - column];
        }
    }

    // Computes grad_in = grad W.
    void propagate(int i, const T* grad, int rows, T* packed, T* grad_in) const {
        const int in_stride = stride(i), grad_stride = stride(i + 1);
        load_rows(h_.weights[i], h_.widths[i], width(i + 1), packed);
        multiply<T>({grad, grad_stride, 1}, rows, width(i), width(i + 1), packed, in_stride,
                    [=](int row, int column, Vec<T> v) { store(grad_in + row * in_stride + column, v); });
    }

    static void gate(T* grad, const T* out, int64_t count) {
        for (int64_t at = 0; at < count; at += lanes<T>) store(grad + at, where_positive<T>(load(out + at), load(grad + at)));
    }

    const HeadLoss<T>& h_;
    const int64_t plane_;
    const Array<T> planes_;
};

template <typename T>
void head_forward(const HeadLoss<T>& head) {
    Head<T>(head).forward();
}

template <typename T>
void head_backward(const HeadLoss<T>& head, const HeadGradients<T>& grads) {
    Head<T>(head).backward(grads);
}

}  // namespace MOLGCN_ISA
}  // namespace molgcn
