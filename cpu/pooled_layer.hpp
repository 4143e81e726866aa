// The last layer together with mean or sum pooling. Both are linear, so that the pooling comes first and the product has one row per
// molecule instead of one per atom. With r_i the sum of row i of Â (symmetric) and S_g = sum_i r_i h_i, pooled_g = S_g W^T + n b; for the
// mean both terms are divided by n.
#pragma once

#include "layer.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

template <typename T>
bool pools_before_last_layer(const Problem<T>& s) {
    return s.pool != Pool::max && !s.last_activation;
}

template <typename T>
T row_sum(const Problem<T>& s, int64_t row) {
    T total = 0;
    for (int64_t e = s.entry_begin[row]; e < s.entry_end[row]; e++) total += s.entries[e].weight;
    return total;
}

// Returns the weight of one atom in its molecule of n atoms.
template <typename T>
T atom_share(const Problem<T>& s, int num_atoms) {
    return s.pool == Pool::mean ? T(1) / T(num_atoms > 0 ? num_atoms : 1) : T(1);
}

// Computes S [graphs, in_stride], divided by n for the mean. `unweighted`, unless null, gets the same sum with all r_i = 1.
template <typename T>
void pool_input(const Network<T>& net, const Tile& tile, const T* h, T* weighted, T* unweighted) {
    const Problem<T>& s = net.problem;
    const ptrdiff_t stride = net[s.num_layers - 1].in_stride;
    for (int g = tile.first_graph; g < tile.last_graph; g++, weighted += stride) {
        const T each = atom_share(s, s.ptr[g + 1] - s.ptr[g]);
        zero(weighted, stride);
        if (unweighted != nullptr) zero(unweighted, stride);
        for (int i = s.row_ptr[g]; i < s.row_ptr[g + 1]; i++) {
            const T* row = h + (i - tile.first_row) * stride;
            const T share = s.copies[i] * each, weight = row_sum(s, i) * share;
            for (ptrdiff_t c = 0; c < stride; c += lanes<T>) store(weighted + c, load(weighted + c) + weight * load(row + c));
            if (unweighted == nullptr) continue;
            for (ptrdiff_t c = 0; c < stride; c += lanes<T>) store(unweighted + c, load(unweighted + c) + share * load(row + c));
        }
        if (unweighted != nullptr) unweighted += stride;
    }
}

template <typename T>
T bias_count(const Problem<T>& s, int graph) {
    const int n = s.ptr[graph + 1] - s.ptr[graph];
    return s.pool == Pool::sum ? T(n) : T(n > 0);
}

// Applies the pooling and the last layer to a tile's rows h. `work` holds three planes of max_graphs rows.
template <typename T>
void forward_pooled_layer(const Network<T>& net, const Tile& tile, const T* h, T* work, int64_t plane, T* pooled) {
    const Problem<T>& s = net.problem;
    const int l = s.num_layers - 1, graphs = tile.last_graph - tile.first_graph;
    const Layer<T>& layer = net[l];
    const ptrdiff_t stride = net.stride;
    T *weighted = work, *unweighted = s.adds_input(l) ? work + plane : nullptr, *product = work + 2 * plane;
    pool_input(net, tile, h, weighted, unweighted);
    multiply<T>({weighted, layer.in_stride, 1}, graphs, net.channels, layer.in_channels, layer.transposed, stride,
                [=](int row, int column, Vec<T> v) { store(product + row * stride + column, v); });
    for (int i = 0; i < graphs; i++) {
        T* out = pooled + int64_t{tile.first_graph + i} * net.channels;
        const T count = bias_count(s, tile.first_graph + i);
        for (int c = 0; c < net.channels; c++) {
            out[c] = product[i * stride + c] + count * layer.bias[c] + (unweighted != nullptr ? unweighted[i * stride + c] : T(0));
        }
    }
}

// Adds the gradients of the layer's weight and bias. Writes grad_h, the gradient of the layer's input, unless it is null.
template <typename T>
void backward_pooled_layer(const Network<T>& net, const Tile& tile, const T* h, const T* grad_pooled, T* work, int64_t plane, T* grad_h,
                           const PartialLayer<T>& partial) {
    const Problem<T>& s = net.problem;
    const int l = s.num_layers - 1, graphs = tile.last_graph - tile.first_graph;
    const Layer<T>& layer = net[l];
    const ptrdiff_t stride = net.stride, in_stride = layer.in_stride;
    T *weighted = work, *grad = work + plane, *grad_weighted = work + 2 * plane;
    pool_input(net, tile, h, weighted, static_cast<T*>(nullptr));
    for (int i = 0; i < graphs; i++) {
        std::memcpy(grad + i * stride, grad_pooled + int64_t{tile.first_graph + i} * net.channels, net.channels * sizeof(T));
        const T count = bias_count(s, tile.first_graph + i);
        for (int c = 0; c < net.channels; c++) partial.bias[c] += count * grad[i * stride + c];
    }
    multiply<T>({grad, 1, stride}, net.channels, layer.in_channels, graphs, weighted, in_stride, [=](int row, int column, Vec<T> v) {
        T* sum = partial.weight + row * in_stride + column;
        store(sum, load(sum) + v);
    });
    if (grad_h == nullptr) return;
    multiply<T>({grad, stride, 1}, graphs, layer.in_channels, net.channels, layer.weight, in_stride,
                [=](int row, int column, Vec<T> v) { store(grad_weighted + row * in_stride + column, v); });
    for (int g = tile.first_graph; g < tile.last_graph; g++, grad += stride, grad_weighted += in_stride) {
        const T each = atom_share(s, s.ptr[g + 1] - s.ptr[g]);
        for (int i = s.row_ptr[g]; i < s.row_ptr[g + 1]; i++) {
            T* row = grad_h + (i - tile.first_row) * in_stride;
            const T share = s.copies[i] * each, weight = row_sum(s, i) * share;
            for (ptrdiff_t c = 0; c < in_stride; c += lanes<T>) {
                Vec<T> v = weight * load(grad_weighted + c);
                if (s.adds_input(l)) v += share * load(grad + c);
                store(row + c, v);
            }
        }
    }
}

}  // namespace MOLGCN_ISA
}  // namespace molgcn
