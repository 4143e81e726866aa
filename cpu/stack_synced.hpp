// Batch norm in training couples the molecules of a batch: one pass over all tiles a layer, forward and backward. The norms' inputs lie in
// Stack::saved; activations are computed again from them, except that residual layers' outputs are kept too.
#pragma once

#include <omp.h>

#include "layer.hpp"
#include "moments.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

template <typename T>
class SyncedStack {
public:
    explicit SyncedStack(const Network<T>& net)
        : net_(net),
          s_(net.stack),
          plane_(s_.num_rows * net.stride),
          work_(plane_rows(s_.partition) * (net.stride > net.in_stride ? net.stride : net.in_stride)),
          scratch_(work_planes * work_ * s_.num_threads) {}

    void forward(const ForwardOutputs<T>& out) {
        const int chunks = s_.partition.num_chunks;
        const Array<Moments> moments(int64_t{chunks} * net_.stride);
        for (int l = 0; l <= s_.num_layers; l++) {
            const bool last = l == s_.num_layers || !s_.normed(l);
            over_chunks([&](int chunk, T* work) {
                Moments* chunk_moments = moments.data() + int64_t{chunk} * net_.stride;
                std::fill_n(chunk_moments, net_.stride, Moments{});
                over_tiles(chunk, [&](const Tile& tile) {
                    make_input(l, tile, work);
                    if (last) return pool_forward(net_, tile, output(l, tile, work), out.pooled);
                    T* z = z_plane(l) + offset(tile);
                    linear(net_, l, tile, input(l, tile, work), work + work_, z);
                    add_moments(z, s_.copies + tile.first_row, tile.num_rows, net_.channels, net_.stride, chunk_moments);
                });
            });
            if (last) return;
            for (int chunk = 1; chunk < chunks; chunk++) {
                for (int c = 0; c < net_.channels; c++) moments[c].merge(moments[int64_t{chunk} * net_.stride + c]);
            }
            for (int c = 0; c < net_.channels; c++) finish_statistics(l, c, moments[c], out);
        }
    }

    void backward(const Gradients<T>& grads) {
        const int64_t partial_size = partial_elements(net_, s_.num_layers);
        const Array<T> partials(partial_size * s_.partition.num_chunks), grad_plane(plane_);
        for (int l = 0; l < s_.num_norms; l++) {
            for (int c = 0; c < net_.channels; c++) net_.set_statistics(l, c, mean_plane(l)[c], rstd_plane(l)[c]);
        }
        over_chunks([&](int chunk, T* work) {
            T* partial = partials.data() + chunk * partial_size;
            zero(partial, partial_size);
            over_tiles(chunk, [&](const Tile& tile) {
                T* grad = grad_plane.data() + offset(tile);
                zero(grad, int64_t{tile.num_rows} * net_.stride);
                const int l = s_.num_norms;  // what is pooled: the last norm's activation, or the layer after it
                const T* h = s_.pool == Pool::max ? output(l, tile, work) : nullptr;
                pool_backward(net_, tile, grads.pooled, h, grad);
                if (l == s_.num_layers) add_norm_gradients(l - 1, tile, grad, partial, work);
            });
        });
        const Array<T> means(2 * net_.stride);
        for (int l = s_.num_layers - 1; l >= 0; l--) {
            if (s_.normed(l)) mean_gradients(l, partials.data(), partial_size, means.data());
            over_chunks([&](int chunk, T* work) {
                T* partial = partials.data() + chunk * partial_size;
                over_tiles(chunk, [&](const Tile& tile) { backward_tile(l, tile, grads, grad_plane.data(), means.data(), partial, work); });
            });
        }
        reduce_partials(net_, partials.data(), partial_size, grads);
    }

private:
    static constexpr int work_planes = 5;  // layer input, aggregated, activation, its gradient, gradient of x

    T* z_plane(int l) const { return s_.saved + l * plane_; }
    T* h_plane(int l) const { return s_.saved + (s_.num_norms + l - 1) * plane_; }  // output of layer l - 1, residual only
    T* mean_plane(int l) const { return s_.saved + s_.num_norms * plane_ * (s_.residual ? 2 : 1) + l * net_.stride; }
    T* rstd_plane(int l) const { return mean_plane(l) + s_.num_norms * net_.stride; }
    int64_t offset(const Tile& tile) const { return int64_t{tile.first_row} * net_.stride; }

    template <typename F>
    void over_chunks(const F& f) const {
#pragma omp parallel num_threads(s_.num_threads)
        {
            T* work = scratch_.data() + int64_t{omp_get_thread_num()} * work_planes * work_;
            zero(work, work_planes * work_);
#pragma omp for schedule(dynamic, 1)
            for (int chunk = 0; chunk < s_.partition.num_chunks; chunk++) f(chunk, work);
        }
    }

    template <typename F>
    void over_tiles(int chunk, const F& f) const {
        for (int t = s_.partition.chunk_ptr[chunk]; t < s_.partition.chunk_ptr[chunk + 1]; t++) f(s_.partition.tiles[t]);
    }

    // The input of layer l on one tile.
    const T* input(int l, const Tile& tile, T* work) const {
        if (l == 0) {
            load_input(net_, tile, work);
            return work;
        }
        if (s_.residual) return h_plane(l) + offset(tile);
        activate(net_, l - 1, tile, z_plane(l - 1) + offset(tile), static_cast<const T*>(nullptr), work, work);
        return work;
    }

    // With residual, computes and keeps the input of layer l.
    void make_input(int l, const Tile& tile, T* work) const {
        if (l == 0 || !s_.residual) return;
        const T* h_in = s_.adds_input(l - 1) ? input(l - 1, tile, work) : nullptr;
        activate(net_, l - 1, tile, z_plane(l - 1) + offset(tile), h_in, work + 2 * work_, h_plane(l) + offset(tile));
    }

    // What is pooled: the input of layer l = L, or the output of a last layer without norm.
    const T* output(int l, const Tile& tile, T* work) const {
        const T* h = input(l, tile, work);
        if (l == s_.num_layers) return h;
        T* z = work + 2 * work_;
        linear(net_, l, tile, h, work + work_, z);
        activate(net_, l, tile, z, s_.adds_input(l) ? h : nullptr, z, z);
        return z;
    }

    void finish_statistics(int l, int c, const Moments& moments, const ForwardOutputs<T>& out) const {
        const double variance = moments.count > 0 ? moments.squares / moments.count : 0;
        const T mean = T(moments.mean), rstd = T(1 / std::sqrt(variance + s_.eps));
        const int64_t at = int64_t{l} * net_.channels + c;
        mean_plane(l)[c] = mean;
        rstd_plane(l)[c] = rstd;
        net_.set_statistics(l, c, mean, rstd);
        const double momentum = moments.count > 0 ? s_.momentum : 0, unbiased = moments.squares / (moments.count > 1 ? moments.count - 1 : 1);
        out.running_means[at] = T((1 - momentum) * s_.running_means[l][c] + momentum * moments.mean);
        out.running_vars[at] = T((1 - momentum) * s_.running_vars[l][c] + momentum * unbiased);
    }

    // Gradient of the norm's output; adds the gradients of its weight and bias, whose means the gradient of its input needs.
    void add_norm_gradients(int l, const Tile& tile, const T* grad_h, T* partial, T* work) const {
        const PartialLayer<T> sums = partial_layer(net_, partial, l);
        const T* z = z_plane(l) + offset(tile);
        const T* g = norm_gradient(l, tile, grad_h, work);
        for (int i = 0; i < tile.num_rows; i++) {
            for (int c = 0; c < net_.channels; c++) {
                const int64_t at = int64_t{i} * net_.stride + c;
                sums.gamma[c] += g[at] * (z[at] - net_[l].mean[c]) * net_[l].rstd[c];
                sums.beta[c] += g[at];
            }
        }
    }

    // Gradient of the norm's output, in the scratch's fourth plane.
    T* norm_gradient(int l, const Tile& tile, const T* grad_h, T* work) const {
        T *act = work + 2 * work_, *g = work + 3 * work_;
        activate(net_, l, tile, z_plane(l) + offset(tile), static_cast<const T*>(nullptr), act, act);
        const T kept_scale = T(1 / (1 - s_.dropout_rate()));
        for (int64_t i = 0; i < int64_t{tile.num_rows} * net_.stride; i += lanes<T>) {
            store(g + i, where_positive<T>(load(act + i), load(grad_h + i) * kept_scale));
        }
        return g;
    }

    // Means over the batch of the norm's output gradient [stride], and of it times the normalised input [stride].
    void mean_gradients(int l, T* partials, int64_t partial_size, T* means) const {
        for (int c = 0; c < net_.channels; c++) {
            double beta = 0, gamma = 0;
            for (int chunk = 0; chunk < s_.partition.num_chunks; chunk++) {
                const PartialLayer<T> sums = partial_layer(net_, partials + chunk * partial_size, l);
                beta += sums.beta[c];
                gamma += sums.gamma[c];
            }
            means[c] = T(beta / s_.num_nodes);
            means[net_.stride + c] = T(gamma / s_.num_nodes);
        }
    }

    void backward_tile(int l, const Tile& tile, const Gradients<T>& grads, T* grad_plane, const T* means, T* partial, T* work) const {
        const PartialLayer<T> sums = partial_layer(net_, partial, l);
        T *grad_h = grad_plane + offset(tile), *grad_x = work + 4 * work_;
        const T* grad_z = grad_h;
        if (s_.normed(l)) {
            T* g = norm_gradient(l, tile, grad_h, work);
            const T *copies = s_.copies + tile.first_row, *z = z_plane(l) + offset(tile), *mean = net_[l].mean, *rstd = net_[l].rstd, *scale = net_[l].scale;
            for (int i = 0; i < tile.num_rows; i++) {
                for (int c = 0; c < net_.channels; c++) {
                    const int64_t at = int64_t{i} * net_.stride + c;
                    g[at] = scale[c] * (g[at] - copies[i] * (means[c] + (z[at] - mean[c]) * rstd[c] * means[net_.stride + c]));
                }
            }
            grad_z = g;
        }
        for (int i = 0; i < tile.num_rows; i++) {
            for (int c = 0; c < net_.channels; c++) sums.bias[c] += grad_z[int64_t{i} * net_.stride + c];
        }
        const T* h = input(l, tile, work);
        T* grad_in = l > 0 ? grad_h : grads.x != nullptr ? grad_x : nullptr;
        backward_linear(net_, l, tile, h, grad_z, work + work_, grad_h, grad_in, sums.weight);
        if (l > 0) add_norm_gradients(l - 1, tile, grad_h, partial, work);
        if (l == 0 && grads.x != nullptr) store_input_gradient(net_, tile, grad_x, grads.x);
    }

    const Network<T>& net_;
    const Stack<T>& s_;
    const int64_t plane_, work_;
    const Array<T> scratch_;
};

}  // namespace MOLGCN_ISA
}  // namespace molgcn
