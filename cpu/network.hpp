// The layers' parameters, padded to whole vectors and in both orders, as the products read them.
#pragma once

#include <cmath>

#include "gcn_stack.hpp"
#include "memory.hpp"
#include "simd.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

template <typename T>
struct Layer {
    int in_channels, in_stride;
    T* transposed;    // [in, stride]: forward, H W^T
    T* weight;        // [hidden, in_stride]: backward, G W
    T *bias;          // [stride]
    T *gamma, *beta;  // [stride] of the norm
    T *mean, *rstd;   // [stride] of batch norm
    T* scale;         // [stride] gamma * rstd
};

// Padded columns of every array are zero, and stay zero through all layers.
template <typename T>
class Network {
public:
    const Stack<T>& stack;
    const int channels, stride, in_stride;

    explicit Network(const Stack<T>& s)
        : stack(s),
          channels(s.hidden_channels),
          stride(row_stride<T>(s.hidden_channels)),
          in_stride(row_stride<T>(s.in_channels)),
          layers_(s.num_layers),
          memory_(elements()) {
        T* next = memory_.data();
        zero(next, elements());
        auto take = [&next](int64_t count) { T* taken = next; next += count; return taken; };
        for (int l = 0; l < s.num_layers; l++) {
            Layer<T>& layer = layers_[l];
            layer.in_channels = l == 0 ? s.in_channels : channels;
            layer.in_stride = l == 0 ? in_stride : stride;
            layer.transposed = take(int64_t{layer.in_channels} * stride);
            layer.weight = take(int64_t{channels} * layer.in_stride);
            for (T** row : {&layer.bias, &layer.gamma, &layer.beta, &layer.mean, &layer.rstd, &layer.scale}) *row = take(stride);
        }
#pragma omp parallel for num_threads(s.num_threads) schedule(dynamic, 1) if (elements() > 1 << 18)
        for (int l = 0; l < s.num_layers; l++) fill(l);
    }

    const Layer<T>& operator[](int l) const { return layers_[l]; }

    // Mean and reciprocal standard deviation of column `o` of layer l's batch norm.
    void set_statistics(int l, int o, T mean, T rstd) const {
        const Layer<T>& layer = layers_[l];
        layer.mean[o] = mean;
        layer.rstd[o] = rstd;
        layer.scale[o] = layer.gamma[o] * rstd;
    }

private:
    void fill(int l) const {
        const Stack<T>& s = stack;
        const Layer<T>& layer = layers_[l];
        for (int o = 0; o < channels; o++) {
            for (int i = 0; i < layer.in_channels; i++) {
                const T w = s.weights[l][int64_t{o} * layer.in_channels + i];
                layer.transposed[int64_t{i} * stride + o] = w;
                layer.weight[int64_t{o} * layer.in_stride + i] = w;
            }
            layer.bias[o] = s.biases[l][o];
            if (!s.normed(l)) continue;
            layer.gamma[o] = s.norm_weights[l][o];
            layer.beta[o] = s.norm_biases[l][o];
            if (s.norm == Norm::batch && !s.training) {
                set_statistics(l, o, s.running_means[l][o], T(1) / std::sqrt(s.running_vars[l][o] + T(s.eps)));
            }
        }
    }

    int64_t elements() const {
        const int64_t rest = int64_t{stack.num_layers} * 6 * stride;
        const int64_t first = int64_t{stack.in_channels} * stride + int64_t{channels} * in_stride;
        return first + (stack.num_layers - 1) * (int64_t{2} * channels * stride) + rest;
    }

    Array<Layer<T>> layers_;
    Array<T> memory_;
};

}  // namespace MOLGCN_ISA
}  // namespace molgcn
