// The layers' parameters, padded to whole vectors and in both orders, as the products read them.
#pragma once

#include <cmath>

#include "gcn_network.hpp"
#include "memory.hpp"
#include "simd.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

template <typename T>
struct Layer {
    int in_channels, in_stride;
    T* transposed;    // [in, stride]: forward, H W^T
    const T* weight;  // [hidden, in_stride]: backward, G W; the parameter itself where it has that form
    T *bias;          // [stride]
    T *gamma, *beta;  // [stride] of the norm
    T *mean, *rstd;   // [stride] of batch norm
    T* scale;         // [stride] gamma * rstd
};

enum class Orders { forward, backward, both };

// The parameters of all layers. Padded columns of every array are zero, and stay zero through all layers. Weights are stored in the orders
// that are asked for.
template <typename T>
class Network {
public:
    const Problem<T>& problem;
    const int channels, stride, in_stride;

    Network(const Problem<T>& s, Orders orders)
        : problem(s),
          channels(s.hidden_channels),
          stride(row_stride<T>(s.hidden_channels)),
          in_stride(row_stride<T>(s.in_channels)),
          layers_(s.num_layers),
          memory_(elements()) {
        T* next = memory_.data();
        auto take = [&next](int64_t count) { T* taken = next; next += count; return taken; };
        for (int l = 0; l < s.num_layers; l++) {
            Layer<T>& layer = layers_[l];
            layer.in_channels = l == 0 ? s.in_channels : channels;
            layer.in_stride = l == 0 ? in_stride : stride;
            layer.transposed = take(int64_t{layer.in_channels} * stride);
            layer.weight = is_padded(s.weights[l], layer) ? s.weights[l] : take(int64_t{channels} * layer.in_stride);
            for (T** row : {&layer.bias, &layer.gamma, &layer.beta, &layer.mean, &layer.rstd, &layer.scale}) *row = take(stride);
        }
#pragma omp parallel for num_threads(s.num_threads) schedule(static) if (elements() > 1 << 14)
        for (int l = 0; l < s.num_layers; l++) fill(l, orders);
    }

    const Layer<T>& operator[](int l) const { return layers_[l]; }

    // Sets the mean and reciprocal standard deviation of column `o` of layer l's batch norm.
    void set_statistics(int l, int o, T mean, T rstd) const {
        const Layer<T>& layer = layers_[l];
        layer.mean[o] = mean;
        layer.rstd[o] = rstd;
        layer.scale[o] = layer.gamma[o] * rstd;
    }

private:
    // Returns whether a parameter's rows are whole cache lines.
    static bool is_padded(const T* weight, const Layer<T>& layer) {
        return layer.in_channels == layer.in_stride && reinterpret_cast<uintptr_t>(weight) % 64 == 0;
    }

    void fill(int l, Orders orders) const {
        const Problem<T>& s = problem;
        const Layer<T>& layer = layers_[l];
        if (orders != Orders::backward) transpose(s.weights[l], layer.in_channels, layer.transposed);
        if (orders != Orders::forward && layer.weight != s.weights[l]) {
            T* row = const_cast<T*>(layer.weight);  // memory of this object
            for (int o = 0; o < channels; o++, row += layer.in_stride) {
                std::memcpy(row, s.weights[l] + int64_t{o} * layer.in_channels, layer.in_channels * sizeof(T));
                zero(row + layer.in_channels, layer.in_stride - layer.in_channels);
            }
        }
        zero(layer.bias, 6 * int64_t{stride});
        for (int o = 0; o < channels; o++) {
            layer.bias[o] = s.biases[l][o];
            if (!s.normed(l)) continue;
            layer.gamma[o] = s.norm_weights[l][o];
            layer.beta[o] = s.norm_biases[l][o];
            if (s.norm == Norm::batch && !s.training) {
                set_statistics(l, o, s.running_means[l][o], T(1) / std::sqrt(s.running_vars[l][o] + T(s.eps)));
            }
        }
    }

    // Transposes a weight in squares of cache lines.
    void transpose(const T* weight, int in_channels, T* out) const {
        constexpr int line = 64 / sizeof(T);
        for (int first = 0; first < in_channels; first += line) {
            const int last = first + line < in_channels ? first + line : in_channels;
            for (int o = 0; o < stride; o += line) {
                const int rows = channels - o < line ? channels - o : line;
                for (int i = first; i < last; i++) {
                    T* to = out + int64_t{i} * stride + o;
                    const T* from = weight + int64_t{o} * in_channels + i;
                    for (int r = 0; r < rows; r++) to[r] = from[int64_t{r} * in_channels];
                    for (int r = rows; r < line; r++) to[r] = T(0);
                }
            }
        }
    }

    int64_t elements() const {
        const int64_t rest = int64_t{problem.num_layers} * 6 * stride;
        const int64_t first = int64_t{problem.in_channels} * stride + int64_t{channels} * in_stride;
        return first + (problem.num_layers - 1) * (int64_t{2} * channels * stride) + rest;
    }

    Array<Layer<T>> layers_;
    Array<T> memory_;
};

}  // namespace MOLGCN_ISA
}  // namespace molgcn
