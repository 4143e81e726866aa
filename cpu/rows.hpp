// Row-wise parts of a layer on one tile: aggregation, norm, relu, dropout and residual.
#pragma once

#include "epilogue.hpp"
#include "network.hpp"
#include "philox.hpp"
#include "pooling.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

// Computes `out` = Â `in`, or the transposed Â `in`, for `columns` channels of a tile.
template <int P, bool TRANSPOSED, typename T>
[[gnu::noinline]] void aggregate_panel(const Problem<T>& s, const Tile& tile, const T* in, T* out, ptrdiff_t stride) {
    const int64_t *begin = s.entry_begin + tile.first_row, *end = s.entry_end + tile.first_row;
    const Entry<T>* entries = s.entries;
    const int num_rows = tile.num_rows;
    for (int i = 0; i < num_rows; i++, out += stride) {
        const Entry<T>*entry = entries + begin[i], *last = entries + end[i];
        Vec<T> c[P] = {};
        for (; entry < last; entry++) {
            const T* row = in + entry->source * stride;
            const T weight = TRANSPOSED ? entry->transposed : entry->weight;
            for (int p = 0; p < P; p++) c[p] += weight * load(row + p * lanes<T>);
        }
        for (int p = 0; p < P; p++) store(out + p * lanes<T>, c[p]);
    }
}

template <bool TRANSPOSED, typename T>
inline void aggregate(const Problem<T>& s, const Tile& tile, const T* in, T* out, ptrdiff_t stride, int columns) {
    each_panel<T>(columns, [&](auto panel, int column) { aggregate_panel<panel.value, TRANSPOSED>(s, tile, in + column, out + column, stride); });
}

// Applies what follows layer l's linear part: act = dropout(relu(norm(z))), and h_out = act, plus h_in where the layer adds its input.
template <typename T>
void activate(const Network<T>& net, int l, const Tile& tile, const T* z, const T* h_in, T* act, T* h_out) {
    const Problem<T>& s = net.problem;
    const Layer<T> layer = net[l];  // copies, since stores could change the originals
    const int channels = net.channels, stride = net.stride;
    const bool activated = s.activated(l), mapped = s.norm == Norm::batch && s.normed(l), row_norm = s.norm == Norm::layer && s.normed(l);
    const Dropout dropout(s.seed, l, s.dropout_rate());
    const T kept_scale = T(1 / (1 - s.dropout_rate()));
    for (int i = 0; i < tile.num_rows; i++) {
        const int64_t offset = int64_t{i} * stride;
        const T* in = z + offset;
        T* out = act + offset;
        const RowMoments<T> row = row_norm ? RowMoments<T>(in, channels, T(s.eps)) : RowMoments<T>();
        for (int c = 0; c < stride; c += lanes<T>) {
            Vec<T> v = load(in + c);
            if (row_norm) v = row.normalised(in, c) * load(layer.gamma + c) + load(layer.beta + c);
            if (mapped) v = NormedColumn<T>(layer, c)(v);
            store(out + c, activated ? relu<T>(v) : v);
        }
        if (activated && dropout.active()) dropout.apply(s.row_atom[tile.first_row + i], channels, kept_scale, out);
        if (h_in != nullptr) {
            for (int c = 0; c < stride; c += lanes<T>) store(h_out + offset + c, load(out + c) + load(h_in + offset + c));
        } else if (h_out != act) {
            std::memcpy(h_out + offset, out, stride * sizeof(T));
        }
    }
}

template <typename T>
Pooling pooling(const Network<T>& net) {
    return {net.problem.pool, net.problem.ptr, net.problem.row_ptr, net.channels, net.stride, net.channels};
}

}  // namespace MOLGCN_ISA
}  // namespace molgcn
