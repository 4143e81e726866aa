// molgcn::attention on the CPU as plain arrays, shared by every instruction set's implementation.
#pragma once

#include <cstddef>
#include <cstdint>

namespace molgcn {

// The entries of a graph by row, each with the node at its other end and its place in the edge list.
struct Walk {
    const int32_t *rowptr, *col, *edge;
};

// A call; tensors and their layout are those of molgcn/ops/attention.py. Null: not there.
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

// Gradients; `scores` [entries, heads] is theirs between the passes, GAT's gradient of the edges itself.
template <typename T>
struct AttentionGradients {
    const T *grad_out, *out, *softmax;
    T *source, *targets, *edges, *scores, *att;
};

// One instruction set's implementation.
template <typename T>
struct AttentionKernels {
    void (*forward)(const Attention<T>&, const Walk& by_target, T* out, T* softmax);
    void (*backward)(const Attention<T>&, const Walk& by_target, const Walk& by_source, const AttentionGradients<T>&);
};

}  // namespace molgcn
