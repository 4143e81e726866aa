// Pooling of each molecule's rows, and its gradient.
#pragma once

#include <algorithm>

#include "gcn_network.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

struct Pooling {
    Pool pool;
    const int32_t *ptr, *row_ptr;  // first atom and first row of each molecule
    int channels;
    ptrdiff_t stride, pooled_stride;  // of h, and of the pooled rows
};

// Pools a tile's rows h into rows of `channels` columns, one for each molecule. Each row of h counts as many atoms as `copies` says.
template <typename T>
void pool_forward(const Pooling& p, const Tile& tile, const T* copies, const T* h, T* pooled) {
    for (int g = tile.first_graph; g < tile.last_graph; g++) {
        T* out = pooled + g * p.pooled_stride;
        const int first = p.row_ptr[g] - tile.first_row, last = p.row_ptr[g + 1] - tile.first_row;
        const T* row = h + first * p.stride;
        for (int c = 0; c < p.channels; c++) out[c] = p.pool == Pool::max && first < last ? row[c] : T(0);
        for (int i = first; i < last; i++, row += p.stride) {
            if (p.pool == Pool::max) {
                for (int c = 0; c < p.channels; c++) out[c] = row[c] > out[c] || row[c] != row[c] ? row[c] : out[c];
            } else {
                for (int c = 0; c < p.channels; c++) out[c] += copies[i] * row[c];
            }
        }
        if (p.pool == Pool::mean && first < last) {
            for (int c = 0; c < p.channels; c++) out[c] /= T(p.ptr[g + 1] - p.ptr[g]);
        }
    }
}

// Computes the gradient of h from that of the pooled rows. The largest atoms of a molecule share its gradient equally. h is read for max
// only.
template <typename T>
void pool_backward(const Pooling& p, const Tile& tile, const T* copies, const T* grad_pooled, const T* h, T* grad_h) {
    for (int g = tile.first_graph; g < tile.last_graph; g++) {
        const T* grad = grad_pooled + g * p.pooled_stride;
        const int first = p.row_ptr[g] - tile.first_row, last = p.row_ptr[g + 1] - tile.first_row;
        if (p.pool != Pool::max) {
            const T each = p.pool == Pool::mean ? T(1) / T(p.ptr[g + 1] - p.ptr[g]) : T(1);
            for (int i = first; i < last; i++) {
                for (int c = 0; c < p.channels; c++) grad_h[i * p.stride + c] = copies[i] * each * grad[c];
            }
            continue;
        }
        for (int c = 0; c < p.channels && first < last; c++) {
            T largest = h[first * p.stride + c], count = 0;
            for (int i = first; i < last; i++) largest = std::max(largest, h[i * p.stride + c]);
            for (int i = first; i < last; i++) count += h[i * p.stride + c] == largest ? copies[i] : T(0);
            for (int i = first; i < last; i++) {
                const ptrdiff_t at = i * p.stride + c;
                grad_h[at] = h[at] == largest ? copies[i] * grad[c] / count : T(0);
            }
        }
    }
}

}  // namespace MOLGCN_ISA
}  // namespace molgcn
