// The layer on tiles of rows. The aggregation and the product of a tile follow each other in cache, forward and backward.
//
// forward:  out = (Â x) W^T + b, or Â (x W^T) + b where the layer narrows, so that the sum over neighbours runs over the narrower rows.
// backward: with P = Â^T grad_out, row by row of the sources, grad_x = P W and grad_W = P^T x, in one pass. Nothing is kept from forward.
#pragma once

#include <memory>

#include "chunks.hpp"
#include "gather.hpp"
#include "panels.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

constexpr int spare_rows = 16;  // a product may read as many rows beyond the last one asked for
constexpr int64_t partial_memory = 64 << 20;

template <typename T>
constexpr int padded(int channels) {
    return vectors<T>(channels) * lanes<T>;
}

// The rows of x [num_nodes, channels] as a left-hand side. A product reads up to spare_rows more, so that the last rows come from a copy.
template <typename T>
class Rows {
public:
    Rows(const T* x, int64_t num_nodes, int channels)
        : x_(x), num_nodes_(num_nodes), channels_(channels), copy_(int64_t{tile_rows + spare_rows} * channels) {}

    Operand<T> at(int64_t row, int rows) {
        const T* from = x_ + row * channels_;
        if (row + rows + spare_rows <= num_nodes_) return {from, channels_, 1};
        std::memcpy(copy_.data(), from, int64_t{rows} * channels_ * sizeof(T));
        return {copy_.data(), channels_, 1};
    }

private:
    const T* x_;
    int64_t num_nodes_;
    int channels_;
    Array<T> copy_;
};

template <typename T>
inline void store_columns(T* row, int column, int columns, Vec<T> v) {
    if (column + lanes<T> <= columns) store_any(row + column, v);
    else std::memcpy(row + column, &v, (columns - column) * sizeof(T));
}

// Computes out [num_nodes, width of `b`] = x B.
template <typename T>
void transform(const Chunks& chunks, const Conv<T>& c, const Panels<T>& b, const T* x, int channels, T* out, int width) {
    chunks.run(c.num_threads, [&] {
        return [&, left = std::make_unique<Rows<T>>(x, c.num_nodes, channels)](int64_t, int64_t row, int rows) {
            T* to = out + row * width;
            b.multiply_by(left->at(row, rows), rows,
                          [=](int r, int column, Vec<T> v) { store_columns(to + int64_t{r} * width, column, width, v); });
        };
    });
}

template <typename T>
Panels<T> transposed_weight(const Conv<T>& c) {
    return Panels<T>(c.weight, c.in_channels, c.out_channels, 1, c.in_channels);
}

template <typename T>
void conv_forward(const Conv<T>& c, const Sparse<T>& a, T* out) {
    const Chunks chunks(a.rowptr, c.num_nodes, many);
    const Panels<T> weight = transposed_weight(c);
    const int in = c.in_channels, width = c.out_channels;
    if (width < in) {
        const Array<T> transformed(c.num_nodes * width);
        transform(chunks, c, weight, c.x, in, transformed.data(), width);
        chunks.run(c.num_threads, [&] {
            return [&](int64_t, int64_t row, int rows) { gather(a, row, rows, transformed.data(), width, c.bias, out + row * width, width); };
        });
        return;
    }
    Array<T> bias(padded<T>(width));
    zero(bias.data(), padded<T>(width));
    if (c.bias != nullptr) std::memcpy(bias.data(), c.bias, width * sizeof(T));
    chunks.run(c.num_threads, [&] {
        return [&, sums = std::make_unique<Array<T>>(int64_t{tile_rows + spare_rows} * padded<T>(in))](int64_t, int64_t row, int rows) {
            gather<T>(a, row, rows, c.x, in, nullptr, sums->data(), padded<T>(in));
            T* to = out + row * width;
            weight.multiply_by({sums->data(), padded<T>(in), 1}, rows, [=, &bias](int r, int column, Vec<T> v) {
                store_columns<T>(to + int64_t{r} * width, column, width, v + load(bias.data() + column));
            });
        };
    });
}

// The buffers of a thread in backward.
template <typename T>
struct BackwardTile {
    Array<T> sums;   // [tile, out]: P
    Panels<T> x;     // the tile's x, the right-hand side of the weight's gradient

    BackwardTile(int in, int out) : sums(int64_t{tile_rows + spare_rows} * padded<T>(out)), x(tile_rows, in) {}
};

template <typename T>
void conv_backward(const Conv<T>& c, const Sparse<T>& a, const ConvGradients<T>& grads) {
    const int in = c.in_channels, width = c.out_channels;
    const int64_t columns = padded<T>(in), size = (grads.weight == nullptr ? 0 : width * columns) + width;
    const Chunks chunks(a.rowptr, c.num_nodes, std::clamp<int64_t>(partial_memory / int64_t(size * sizeof(T)), 8, 128));
    const Panels<T> weight(c.weight, width, in, in, 1);
    Array<T> partials(chunks.count * size);  // of each chunk: the weight's gradient, then the bias'
    zero(partials.data(), chunks.count * size);
    chunks.run(c.num_threads, [&] {
        return [&, tile = std::make_unique<BackwardTile<T>>(in, width)](int64_t chunk, int64_t row, int rows) {
            T* partial = partials.data() + chunk * size;
            if (grads.bias != nullptr) {
                T* sum = partial + size - width;
                for (int64_t i = row; i < row + rows; i++) {
                    for (int k = 0; k < width; k++) sum[k] += grads.out[i * width + k];
                }
            }
            if (grads.x == nullptr && grads.weight == nullptr) return;
            gather<T>(a, row, rows, grads.out, width, nullptr, tile->sums.data(), padded<T>(width));
            if (grads.x != nullptr) {
                T* to = grads.x + row * in;
                weight.multiply_by({tile->sums.data(), padded<T>(width), 1}, rows,
                                   [=](int r, int column, Vec<T> v) { store_columns(to + int64_t{r} * in, column, in, v); });
            }
            if (grads.weight != nullptr) {
                tile->x.pack(c.x + row * in, rows, in, 1);
                tile->x.multiply_by({tile->sums.data(), 1, padded<T>(width)}, width, [=](int r, int column, Vec<T> v) {
                    T* to = partial + r * columns + column;
                    store_any<T>(to, load_any(to) + v);
                });
            }
        };
    });
    T* total = partials.data();
    for (int64_t chunk = 1; chunk < chunks.count; chunk++) {
        for (int64_t i = 0; i < size; i++) total[i] += partials[chunk * size + i];
    }
    if (grads.bias != nullptr) std::memcpy(grads.bias, total + size - width, width * sizeof(T));
    for (int o = 0; grads.weight != nullptr && o < width; o++) std::memcpy(grads.weight + int64_t{o} * in, total + o * columns, in * sizeof(T));
}

// Computes d(loss)/d(entry of Â) = grad_out[target] . (W x[source]) = (grad_out[target] W) . x[source], by the narrower of the two.
template <typename T>
void conv_entries(const Conv<T>& c, const Sparse<T>& a, const T* grad_out, T* grad_entries) {
    const Chunks chunks(a.rowptr, c.num_nodes, many);
    const int in = c.in_channels, out = c.out_channels, width = std::min(in, out);
    const Array<T> product(c.num_nodes * width);
    if (out < in) {
        transform(chunks, c, transposed_weight(c), c.x, in, product.data(), width);
    } else {
        transform(chunks, c, Panels<T>(c.weight, out, in, in, 1), grad_out, out, product.data(), width);
    }
    const T* targets = out < in ? grad_out : product.data();
    const T* sources = out < in ? product.data() : c.x;
    chunks.run(c.num_threads, [&] {
        return [&](int64_t, int64_t row, int rows) {
            for (int64_t i = row; i < row + rows; i++) {
                for (int64_t e = a.rowptr[i]; e < a.rowptr[i + 1]; e++) {
                    grad_entries[e] = dot(targets + i * width, sources + int64_t{a.col[e]} * width, width);
                }
            }
        };
    });
}

}  // namespace MOLGCN_ISA
}  // namespace molgcn
