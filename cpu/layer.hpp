// One layer on one tile, forward and backward.
#pragma once

#include "gemm.hpp"
#include "rows.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

// Returns how many rows a plane of a tile needs, so that products may read beyond the last atom.
inline int64_t plane_rows(const Partition& partition) { return partition.max_rows + slack_rows; }

template <typename T>
void load_input(const Network<T>& net, const Tile& tile, T* out) {
    const int channels = net.problem.in_channels;
    for (int i = 0; i < tile.num_rows; i++) {
        std::memcpy(out + int64_t{i} * net.in_stride, net.problem.x + int64_t{net.problem.row_atom[tile.first_row + i]} * channels, channels * sizeof(T));
    }
}

// Computes z = Â h W^T + b.
template <typename T>
void linear(const Network<T>& net, int l, const Tile& tile, const T* h, T* aggregated, T* z) {
    const Layer<T>& layer = net[l];
    const T* bias = layer.bias;
    const ptrdiff_t stride = net.stride;
    aggregate<false>(net.problem, tile, h, aggregated, layer.in_stride, layer.in_channels);
    multiply<T>({aggregated, layer.in_stride, 1}, tile.num_rows, net.channels, layer.in_channels, layer.transposed, stride,
                [=](int row, int column, Vec<T> v) { store(z + row * stride + column, v + load(bias + column)); });
}

// Computes the whole layer. z and act may be h_out where backward does not need them.
template <typename T>
void forward_layer(const Network<T>& net, int l, const Tile& tile, const T* h, T* aggregated, T* z, T* act, T* h_out) {
    const Problem<T>& s = net.problem;
    const Layer<T>& layer = net[l];
    const bool adds_input = s.adds_input(l);
    if (act != h_out || s.normed(l) || adds_input || !s.activated(l) || s.dropout_rate() > 0) {
        linear(net, l, tile, h, aggregated, z);
        activate(net, l, tile, z, adds_input ? h : nullptr, act, h_out);
        return;
    }
    const T* bias = layer.bias;
    const ptrdiff_t stride = net.stride;
    aggregate<false>(s, tile, h, aggregated, layer.in_stride, layer.in_channels);
    multiply<T>({aggregated, layer.in_stride, 1}, tile.num_rows, net.channels, layer.in_channels, layer.transposed, stride,
                [=](int row, int column, Vec<T> v) { store(h_out + row * stride + column, relu<T>(v + load(bias + column))); });
}

// Sums of parameters' gradients over a chunk of tiles, in one flat array, layer after layer.
template <typename T>
struct PartialLayer {
    T *weight, *bias, *gamma, *beta;  // [hidden, in_stride], [stride], [stride], [stride]
};

template <typename T>
int64_t partial_elements(const Network<T>& net, int num_layers) {
    int64_t total = 0;
    for (int l = 0; l < num_layers; l++) total += int64_t{net.channels} * net[l].in_stride + 3 * net.stride;
    return total;
}

template <typename T>
PartialLayer<T> partial_layer(const Network<T>& net, T* partial, int l) {
    T* weight = partial + partial_elements(net, l);
    T* bias = weight + int64_t{net.channels} * net[l].in_stride;
    return {weight, bias, bias + net.stride, bias + 2 * net.stride};
}

// Takes the gradient through dropout and relu, for the columns of one vector, and returns the column sums. GATED: the layer is activated.
template <bool GATED, typename T>
inline Vec<T> backward_column(const Tile& tile, const T* grad_h, const T* act, T* grad_z, ptrdiff_t stride, T kept_scale) {
    Vec<T> even{}, odd{};
    int i = 0;
    const auto step = [&](ptrdiff_t at) {
        const Vec<T> g = GATED ? where_positive<T>(load(act + at), load(grad_h + at) * kept_scale) : load(grad_h + at);
        store(grad_z + at, g);
        return g;
    };
    for (; i + 1 < tile.num_rows; i += 2) {
        even += step(i * stride);
        odd += step((i + 1) * stride);
    }
    if (i < tile.num_rows) even += step(i * stride);
    return even + odd;
}

// Takes the gradient through dropout, relu and batch norm's fixed affine map. Adds the gradients of the norm's weight and bias.
template <typename T>
inline Vec<T> backward_mapped_column(const Tile& tile, const Layer<T>& layer, int column, const T* grad_h, const T* act, const T* z, T* grad_z,
                                     ptrdiff_t stride, T kept_scale, const PartialLayer<T>& partial) {
    const Vec<T> mean = load(layer.mean + column), rstd = load(layer.rstd + column), scale = load(layer.scale + column);
    Vec<T> bias{}, gamma{}, beta{};
    for (int i = 0; i < tile.num_rows; i++) {
        const ptrdiff_t at = i * stride + column;
        const Vec<T> g = where_positive<T>(load(act + at), load(grad_h + at) * kept_scale);
        gamma += g * (load(z + at) - mean) * rstd;
        beta += g;
        store(grad_z + at, g * scale);
        bias += g * scale;
    }
    store(partial.gamma + column, load(partial.gamma + column) + gamma);
    store(partial.beta + column, load(partial.beta + column) + beta);
    return bias;
}

// Takes the gradient through dropout, relu and the norm of each atom's features. Adds the gradients of the norm's weight and bias.
template <typename T>
void backward_row_norm(const Network<T>& net, const Layer<T>& layer, const Tile& tile, const T* grad_h, const T* act, const T* z, T* grad_z,
                       T kept_scale, const PartialLayer<T>& partial) {
    for (int i = 0; i < tile.num_rows; i++) {
        const ptrdiff_t offset = ptrdiff_t{i} * net.stride;
        const T *zi = z + offset, *gate = act + offset, *in = grad_h + offset;
        const RowMoments<T> row(zi, net.channels, T(net.problem.eps));
        through_row_norm(row, zi, net.channels, net.stride, grad_z + offset, [&](int c) {
            const Vec<T> g = where_positive<T>(load(gate + c), load(in + c) * kept_scale);
            store(partial.gamma + c, load(partial.gamma + c) + g * row.normalised(zi, c));
            store(partial.beta + c, load(partial.beta + c) + g);
            return g * load(layer.gamma + c);
        });
    }
}

// Computes grad_z from grad_h, the gradient of the layer's output, through dropout, relu and a norm whose statistics are constants or one
// atom's own. It may work in place. Adds the gradients of bias and norm.
template <typename T>
void backward_rows(const Network<T>& net, int l, const Tile& tile, const T* grad_h, const T* act, const T* z, T* grad_z,
                   const PartialLayer<T>& partial) {
    const Problem<T>& s = net.problem;
    const T kept_scale = T(1 / (1 - s.dropout_rate()));
    const bool row_norm = s.normed(l) && s.norm == Norm::layer;
    if (row_norm) backward_row_norm(net, net[l], tile, grad_h, act, z, grad_z, kept_scale, partial);
    for (int column = 0; column < net.stride; column += lanes<T>) {
        Vec<T> bias;
        if (row_norm) {
            bias = backward_column<false>(tile, grad_z + column, act + column, grad_z + column, net.stride, kept_scale);
        } else if (s.normed(l)) {
            bias = backward_mapped_column(tile, net[l], column, grad_h, act, z, grad_z, net.stride, kept_scale, partial);
        } else if (s.activated(l)) {
            bias = backward_column<true>(tile, grad_h + column, act + column, grad_z + column, net.stride, kept_scale);
        } else {
            bias = backward_column<false>(tile, grad_h + column, act + column, grad_z + column, net.stride, kept_scale);
        }
        store(partial.bias + column, load(partial.bias + column) + bias);
    }
}

// Adds the weight's gradient and, unless grad_in is null, writes the gradient of the layer's input, both from grad_z. `grad_h`, the
// gradient of the layer's output, is added where the layer adds its input; it may be grad_in.
template <typename T>
void backward_linear(const Network<T>& net, int l, const Tile& tile, const T* h, const T* grad_z, T* aggregated, const T* grad_h, T* grad_in,
                     T* weight_partial) {
    const Layer<T>& layer = net[l];
    const ptrdiff_t stride = net.stride, in_stride = layer.in_stride;
    aggregate<true>(net.problem, tile, grad_z, aggregated, stride, net.channels);
    multiply<T>({aggregated, 1, stride}, net.channels, layer.in_channels, tile.num_rows, h, in_stride, [=](int row, int column, Vec<T> v) {
        T* sum = weight_partial + row * in_stride + column;
        store(sum, load(sum) + v);
    });
    if (grad_in == nullptr) return;
    const Operand<T> a{aggregated, stride, 1};
    if (net.problem.adds_input(l)) {
        multiply<T>(a, tile.num_rows, layer.in_channels, net.channels, layer.weight, in_stride, [=](int row, int column, Vec<T> v) {
            store(grad_in + row * in_stride + column, v + load(grad_h + row * in_stride + column));
        });
    } else {
        multiply<T>(a, tile.num_rows, layer.in_channels, net.channels, layer.weight, in_stride,
                    [=](int row, int column, Vec<T> v) { store(grad_in + row * in_stride + column, v); });
    }
}

template <typename T>
void store_input_gradient(const Network<T>& net, const Tile& tile, const T* grad, T* out) {
    const Problem<T>& s = net.problem;
    for (int atom = s.ptr[tile.first_graph]; atom < s.ptr[tile.last_graph]; atom++) {
        const int row = s.atom_row[atom];
        const T* in = grad + int64_t{row - tile.first_row} * net.in_stride;
        for (int c = 0; c < s.in_channels; c++) out[int64_t{atom} * s.in_channels + c] = in[c] / s.copies[row];
    }
}

// Adds the chunks' sums up in order and writes them to the parameters' gradients.
template <typename T>
void reduce_partials(const Network<T>& net, T* partials, int64_t partial_size, const Gradients<T>& grads) {
    const Problem<T>& s = net.problem;
    constexpr int64_t slice = 1024;
#pragma omp parallel for num_threads(s.num_threads) schedule(static)
    for (int64_t first = 0; first < partial_size; first += slice) {
        const int64_t last = first + slice < partial_size ? first + slice : partial_size;
        for (int chunk = 1; chunk < s.partition.num_chunks; chunk++) {
            const T* next = partials + chunk * partial_size;
            for (int64_t i = first; i < last; i++) partials[i] += next[i];
        }
    }
    for (int l = 0; l < s.num_layers; l++) {
        const PartialLayer<T> sum = partial_layer(net, partials, l);
        const int64_t at = int64_t{l} * net.channels;
        T* weight = l == 0 ? grads.first_weight : grads.weights + (at - net.channels) * net.channels;
        const int in = net[l].in_channels;
        for (int o = 0; o < net.channels; o++) std::memcpy(weight + int64_t{o} * in, sum.weight + int64_t{o} * net[l].in_stride, in * sizeof(T));
        std::memcpy(grads.biases + at, sum.bias, net.channels * sizeof(T));
        if (s.normed(l)) {
            std::memcpy(grads.norm_weights + at, sum.gamma, net.channels * sizeof(T));
            std::memcpy(grads.norm_biases + at, sum.beta, net.channels * sizeof(T));
        }
    }
}

}  // namespace MOLGCN_ISA
}  // namespace molgcn
