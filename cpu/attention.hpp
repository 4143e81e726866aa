// molgcn::attention on the CPU as plain arrays. Every instruction set's implementation shares these declarations.
#pragma once

#include <cstddef>
#include <cstdint>

namespace molgcn {

// The entries of a graph by row, each with the node at its other end and its index in the edge list.
struct Walk {
    const int32_t *rowptr, *col, *edge;
};

// The arguments of a call. Tensors and their layout are those of molgcn/ops/attention.py; null where a tensor is not given.
template <typename T>
struct Attention {
    int64_t num_sources, num_targets, source_stride, target_stride;
    int heads, channels, num_threads;
    const T *source, *targets, *edges, *att;
    double negative_slope, dropout;
    uint64_t seed;

    int width() const { return heads * channels; }
    int scores() const { return att == nullptr ? heads : width(); }
};

// The gradients of a call. `scores` [entries, heads] passes the scores' gradients between the passes; for GAT it is the gradient of the
// edges.
template <typename T>
struct AttentionGradients {
    const T *grad_out, *out, *softmax;
    T *source, *targets, *edges, *scores, *att;
};

// The kernels of one instruction set.
template <typename T>
struct AttentionKernels {
    void (*forward)(const Attention<T>&, const Walk& by_target, T* out, T* softmax);
    void (*backward)(const Attention<T>&, const Walk& by_target, const Walk& by_source, const AttentionGradients<T>&);
};

}  // namespace molgcn
