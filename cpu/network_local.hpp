// All layers of one tile while it lies in cache, for every norm but batch norm in training. Nothing is kept between forward and backward:
// backward computes the tile's activations again, which costs less than writing them to memory and reading them back.
#pragma once

#include <omp.h>

#include <algorithm>

#include "pooled_layer.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

// The activations of one tile: two alternating planes in forward, all planes in backward. Backward also needs the activated part of
// residual layers and the inputs of norms.
template <typename T>
class Activations {
public:
    Activations(const Network<T>& net, bool keep)
        : keep_(keep),
          own_act_(keep && net.problem.residual),
          own_z_(keep && net.problem.norm != Norm::none),
          layers_(net.problem.num_layers),
          input_(plane_rows(net.problem.partition) * net.in_stride),
          plane_(plane_rows(net.problem.partition) * net.stride) {}

    int64_t elements() const { return input_ + plane_ * (keep_ ? layers_ * (1 + own_act_ + own_z_) : 2); }
    void use(T* memory) { memory_ = memory; }

    T* h(int l) const { return l == 0 ? memory_ : memory_ + input_ + plane_ * (keep_ ? l - 1 : (l - 1) % 2); }
    T* act(int l) const { return own_act_ ? h(layers_ + 1 + l) : h(l + 1); }
    T* z(int l) const { return own_z_ ? h(layers_ * (1 + own_act_) + 1 + l) : act(l); }

private:
    bool keep_, own_act_, own_z_;
    int layers_;
    int64_t input_, plane_;
    T* memory_ = nullptr;
};

// Returns how many layers run atom by atom; the last one may come after the pooling.
template <typename T>
int atom_layers(const Problem<T>& s) {
    return s.num_layers - pools_before_last_layer(s);
}

template <typename T>
void forward_tile(const Network<T>& net, const Tile& tile, const Activations<T>& a, T* aggregated) {
    load_input(net, tile, a.h(0));
    for (int l = 0; l < atom_layers(net.problem); l++) forward_layer(net, l, tile, a.h(l), aggregated, a.z(l), a.act(l), a.h(l + 1));
}

// Returns the elements of a plane with room for a tile's atoms or its molecules, in rows of the wider kind.
template <typename T>
int64_t work_plane(const Network<T>& net) {
    const int64_t rows = std::max<int64_t>(plane_rows(net.problem.partition), net.problem.partition.max_graphs + slack_rows);
    return rows * std::max(net.stride, net.in_stride);
}

constexpr int work_planes = 6;  // aggregated, gradient of the output, of the linear part; three of pooled rows

template <typename T>
void forward_local(const Network<T>& net, const ForwardOutputs<T>& out) {
    const Problem<T>& s = net.problem;
    const int64_t scratch_size = Activations<T>(net, false).elements() + work_planes * work_plane(net);
    const Array<T> scratch(scratch_size * s.num_threads);
#pragma omp parallel num_threads(s.num_threads)
    {
        T* memory = scratch.data() + omp_get_thread_num() * scratch_size;
        zero(memory, scratch_size);
        Activations<T> a(net, false);
        a.use(memory + work_planes * work_plane(net));
#pragma omp for schedule(dynamic, 1)
        for (int t = 0; t < s.partition.num_tiles; t++) {
            const Tile& tile = s.partition.tiles[t];
            forward_tile(net, tile, a, memory);
            if (pools_before_last_layer(s)) {
                forward_pooled_layer(net, tile, a.h(s.num_layers - 1), memory + 3 * work_plane(net), work_plane(net), out.pooled);
            } else {
                pool_forward(pooling(net), tile, s.copies + tile.first_row, a.h(s.num_layers), out.pooled);
            }
        }
    }
}

template <typename T>
void backward_tile(const Network<T>& net, const Tile& tile, const Activations<T>& a, T* work, T* partial, const Gradients<T>& grads) {
    const Problem<T>& s = net.problem;
    const int64_t plane = work_plane(net);
    T *aggregated = work, *grad_h = work + plane, *separate = work + 2 * plane;
    forward_tile(net, tile, a, aggregated);
    const int layers = atom_layers(s);
    if (layers < s.num_layers) {
        const bool last = layers == 0 && grads.x == nullptr;
        backward_pooled_layer(net, tile, a.h(layers), grads.pooled, work + 3 * plane, plane, last ? nullptr : grad_h, partial_layer(net, partial, layers));
    } else {
        pool_backward(pooling(net), tile, s.copies + tile.first_row, grads.pooled, a.h(layers), grad_h);
    }
    for (int l = layers - 1; l >= 0; l--) {
        T* grad_z = s.adds_input(l) ? separate : grad_h;
        T* grad_in = l > 0 || grads.x != nullptr ? grad_h : nullptr;
        const PartialLayer<T> sums = partial_layer(net, partial, l);
        backward_rows(net, l, tile, grad_h, a.act(l), a.z(l), grad_z, sums);
        backward_linear(net, l, tile, a.h(l), grad_z, aggregated, grad_h, grad_in, sums.weight);
    }
    if (grads.x != nullptr) store_input_gradient(net, tile, grad_h, grads.x);
}

template <typename T>
void backward_local(const Network<T>& net, const Gradients<T>& grads) {
    const Problem<T>& s = net.problem;
    const int64_t partial_size = partial_elements(net, s.num_layers);
    const int64_t scratch_size = Activations<T>(net, true).elements() + work_planes * work_plane(net);
    const Array<T> partials(partial_size * s.partition.num_chunks);
    const Array<T> scratch(scratch_size * s.num_threads);
#pragma omp parallel num_threads(s.num_threads)
    {
        T* memory = scratch.data() + omp_get_thread_num() * scratch_size;
        zero(memory, scratch_size);
        Activations<T> a(net, true);
        a.use(memory + work_planes * work_plane(net));
#pragma omp for schedule(dynamic, 1)
        for (int chunk = 0; chunk < s.partition.num_chunks; chunk++) {
            T* partial = partials.data() + chunk * partial_size;
            zero(partial, partial_size);
            for (int t = s.partition.chunk_ptr[chunk]; t < s.partition.chunk_ptr[chunk + 1]; t++) {
                backward_tile(net, s.partition.tiles[t], a, memory, partial, grads);
            }
        }
    }
    reduce_partials(net, partials.data(), partial_size, grads);
}

}  // namespace MOLGCN_ISA
}  // namespace molgcn
