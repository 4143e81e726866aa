// Batch norm in training, which couples the molecules of a batch: there is one pass over all tiles for each layer, forward and backward.
// The norms' inputs lie in Problem::saved. Activations are computed again from them, except that residual layers' outputs are kept too.
#pragma once

#include <omp.h>

#include <algorithm>

#include "layer.hpp"
#include "moments.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

template <typename T>
class SyncedNetwork {
public:
    explicit SyncedNetwork(const Network<T>& net)
        : net_(net),
          s_(net.problem),
          plane_(s_.num_rows * net.stride),
          work_(plane_rows(s_.partition) * std::max(net.stride, net.in_stride)),
          scratch_(work_planes * work_ * s_.num_threads) {}

    void forward(const ForwardOutputs<T>& out) const {
        const Array<Moments> moments(s_.partition.num_chunks);
        const Array<double> columns(2 * int64_t{s_.partition.num_chunks} * net_.stride);
#pragma omp parallel num_threads(s_.num_threads)
        {
            T* work = own_scratch();
            for (int l = 0; l <= s_.num_norms; l++) {
                const bool last = l == s_.num_norms;
                over_chunks([&](int chunk) {
                    Deviations<T> deviations(columns.data() + 2 * int64_t{chunk} * net_.stride, net_.stride);
                    over_tiles(chunk, [&](const Tile& tile) {
                        make_input(l, tile, work);
                        if (last) return pool_forward(pooling(net_), tile, s_.copies + tile.first_row, output(l, tile, work), out.pooled);
                        T* z = z_plane(l) + offset(tile);
                        linear(net_, l, tile, input(l, tile, work), work + work_, z);
                        deviations.add(z, s_.copies + tile.first_row, tile.num_rows);
                    });
                    moments[chunk] = deviations.moments();
                });
                if (last) break;
#pragma omp single
                finish_statistics(l, moments.data(), out);
            }
        }
    }

    void backward(const Gradients<T>& grads) const {
        const int64_t partial_size = partial_elements(net_, s_.num_layers);
        const Array<T> partials(partial_size * s_.partition.num_chunks), grad_plane(plane_), means(2 * net_.stride);
        zero(means.data(), 2 * net_.stride);
        for (int l = 0; l < s_.num_norms; l++) {
            for (int c = 0; c < net_.channels; c++) net_.set_statistics(l, c, mean_plane(l)[c], rstd_plane(l)[c]);
        }
#pragma omp parallel num_threads(s_.num_threads)
        {
            T* work = own_scratch();
            over_chunks([&](int chunk) {
                T* partial = partials.data() + chunk * partial_size;
                zero(partial, partial_size);
                over_tiles(chunk, [&](const Tile& tile) {
                    T* grad = grad_plane.data() + offset(tile);
                    zero(grad, int64_t{tile.num_rows} * net_.stride);
                    const int l = s_.num_norms;  // the pooled values: the last norm's activation, or the layer after it
                    const T* h = s_.pool == Pool::max ? output(l, tile, work) : nullptr;
                    pool_backward(pooling(net_), tile, s_.copies + tile.first_row, grads.pooled, h, grad);
                    if (l == s_.num_layers) add_norm_gradients(l - 1, tile, grad, partial, work);
                });
            });
            for (int l = s_.num_layers - 1; l >= 0; l--) {
                if (s_.normed(l)) {
#pragma omp single
                    mean_gradients(l, partials.data(), partial_size, means.data());
                }
                over_chunks([&](int chunk) {
                    T* partial = partials.data() + chunk * partial_size;
                    over_tiles(chunk, [&](const Tile& tile) { backward_tile(l, tile, grads, grad_plane.data(), means.data(), partial, work); });
                });
            }
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

    T* own_scratch() const {
        T* work = scratch_.data() + int64_t{omp_get_thread_num()} * work_planes * work_;
        zero(work, work_planes * work_);
        return work;
    }

    // Shares the chunks among the threads of the region that calls it, and waits for all.
    template <typename F>
    void over_chunks(const F& f) const {
#pragma omp for schedule(static)
        for (int chunk = 0; chunk < s_.partition.num_chunks; chunk++) f(chunk);
    }

    template <typename F>
    void over_tiles(int chunk, const F& f) const {
        for (int t = s_.partition.chunk_ptr[chunk]; t < s_.partition.chunk_ptr[chunk + 1]; t++) f(s_.partition.tiles[t]);
    }

    // Returns the input of layer l on one tile.
    const T* input(int l, const Tile& tile, T* work) const {
        if (l == 0) {
            load_input(net_, tile, work);
            return work;
        }
        if (s_.residual) return h_plane(l) + offset(tile);
        return activation(l - 1, tile, work);
    }

    // Writes layer l's activation to `out`, without what a residual layer adds.
    T* activation(int l, const Tile& tile, T* out) const {
        activate(l, tile, static_cast<const T*>(nullptr), out, out);
        return out;
    }

    // Computes and keeps the input of layer l, with residual.
    void make_input(int l, const Tile& tile, T* work) const {
        if (l == 0 || !s_.residual) return;
        const T* h_in = s_.adds_input(l - 1) ? input(l - 1, tile, work) : nullptr;
        activate(l - 1, tile, h_in, work + 2 * work_, h_plane(l) + offset(tile));
    }

    // Computes h_out = dropout(relu(norm(z))), plus h_in unless it is null. `work` is used by a layer with dropout.
    void activate(int l, const Tile& tile, const T* h_in, T* work, T* h_out) const {
        const T* z = z_plane(l) + offset(tile);
        if (s_.dropout_rate() > 0) return MOLGCN_ISA::activate(net_, l, tile, z, h_in, work, h_out);
        for (int column = 0; column < net_.stride; column += lanes<T>) {
            const NormedColumn<T> norm(net_[l], column);
            const int64_t last = int64_t{tile.num_rows} * net_.stride;
            if (h_in != nullptr) {
                for (int64_t at = column; at < last; at += net_.stride) store(h_out + at, relu<T>(norm(load(z + at))) + load(h_in + at));
            } else {
                for (int64_t at = column; at < last; at += net_.stride) store(h_out + at, relu<T>(norm(load(z + at))));
            }
        }
    }

    // Returns what is pooled: the input of layer l = L, or the output of a last layer without norm.
    const T* output(int l, const Tile& tile, T* work) const {
        const T* h = input(l, tile, work);
        if (l == s_.num_layers) return h;
        T* z = work + 2 * work_;
        linear(net_, l, tile, h, work + work_, z);
        MOLGCN_ISA::activate(net_, l, tile, z, s_.adds_input(l) ? h : nullptr, z, z);
        return z;
    }

    void finish_statistics(int l, Moments* moments, const ForwardOutputs<T>& out) const {
        const Moments& sum = merged(moments, s_.partition.num_chunks, net_.channels);
        write_statistics<T>(sum, net_.channels, s_.eps, s_.momentum, {mean_plane(l), rstd_plane(l), s_.running_means[l], s_.running_vars[l],
                                                                      out.running_means[l], out.running_vars[l]});
        for (int c = 0; c < net_.channels; c++) net_.set_statistics(l, c, mean_plane(l)[c], rstd_plane(l)[c]);
    }

    // Calls visit(column, gradient) for the columns of layer l on one tile. gradient(at, z) returns the gradient of the norm's output
    // through dropout and relu, at one vector whose norm's input is z.
    template <typename Visit>
    void visit_columns(int l, const Tile& tile, const T* grad_h, T* work, const Visit& visit) const {
        const bool dropout = s_.dropout_rate() > 0;
        const T *act = dropout ? activation(l, tile, work + 2 * work_) : nullptr, kept_scale = T(1 / (1 - s_.dropout_rate()));
        for (int column = 0; column < net_.stride; column += lanes<T>) {
            if (dropout) {
                visit(column, [=](int64_t at, Vec<T>) { return where_positive<T>(load(act + at), load(grad_h + at) * kept_scale); });
            } else {
                const NormedColumn<T> norm(net_[l], column);
                visit(column, [=](int64_t at, Vec<T> z) { return where_positive<T>(norm(z), load(grad_h + at)); });
            }
        }
    }

    // Adds the gradients of the norm's weight and bias. The gradient of the norm's input needs their means.
    void add_norm_gradients(int l, const Tile& tile, const T* grad_h, T* partial, T* work) const {
        const PartialLayer<T> sums = partial_layer(net_, partial, l);
        const T* z_tile = z_plane(l) + offset(tile);
        visit_columns(l, tile, grad_h, work, [&](int column, const auto& gradient) {
            const Vec<T> mean = load(net_[l].mean + column), rstd = load(net_[l].rstd + column);
            Vec<T> gamma{}, beta{};
            for (int64_t at = column; at < int64_t{tile.num_rows} * net_.stride; at += net_.stride) {
                const Vec<T> z = load(z_tile + at), g = gradient(at, z);
                gamma += g * (z - mean);
                beta += g;
            }
            store(sums.gamma + column, load(sums.gamma + column) + gamma * rstd);
            store(sums.beta + column, load(sums.beta + column) + beta);
        });
    }

    // Computes the means over the batch of the gradient of the norm's output [stride], and of it times the normalised input [stride].
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

    // Writes the gradient of the linear part to `out`, from that of the layer's output, and adds the gradient of the bias.
    void linear_gradient(int l, const Tile& tile, const T* grad_h, const T* means, const PartialLayer<T>& sums, T* work, T* out) const {
        const T *z_tile = z_plane(l) + offset(tile), *copies = s_.copies + tile.first_row;
        visit_columns(l, tile, grad_h, work, [&](int column, const auto& gradient) {
            const Vec<T> mean = load(net_[l].mean + column), rstd = load(net_[l].rstd + column), scale = load(net_[l].scale + column);
            const Vec<T> mean_g = load(means + column), mean_gx = load(means + net_.stride + column) * rstd;
            Vec<T> bias = load(sums.bias + column);
            int64_t at = column;
            for (int i = 0; i < tile.num_rows; i++, at += net_.stride) {
                const Vec<T> z = load(z_tile + at), g = scale * (gradient(at, z) - copies[i] * (mean_g + (z - mean) * mean_gx));
                store(out + at, g);
                bias += g;
            }
            store(sums.bias + column, bias);
        });
    }

    void backward_tile(int l, const Tile& tile, const Gradients<T>& grads, T* grad_plane, const T* means, T* partial, T* work) const {
        const PartialLayer<T> sums = partial_layer(net_, partial, l);
        T *grad_h = grad_plane + offset(tile), *grad_z = work + 3 * work_, *grad_x = work + 4 * work_;
        if (s_.normed(l)) {
            linear_gradient(l, tile, grad_h, means, sums, work, grad_z);
        } else {
            backward_rows(net_, l, tile, grad_h, grad_h, grad_h, grad_z, sums);
        }
        const T* h = input(l, tile, work);
        T* grad_in = l > 0 ? grad_h : grads.x != nullptr ? grad_x : nullptr;
        backward_linear(net_, l, tile, h, grad_z, work + work_, grad_h, grad_in, sums.weight);
        if (l > 0) add_norm_gradients(l - 1, tile, grad_h, partial, work);
        if (l == 0 && grads.x != nullptr) store_input_gradient(net_, tile, grad_x, grads.x);
    }

    const Network<T>& net_;
    const Problem<T>& s_;
    const int64_t plane_, work_;
    const Array<T> scratch_;
};

}  // namespace MOLGCN_ISA
}  // namespace molgcn
