// molgcn::aggregate on the CPU: one pass over the rows of a graph as plain arrays. Every instruction set's implementation shares these
// declarations.
#pragma once

#include <cstdint>

namespace molgcn {

enum class Pass : int {
    sum,
    mean,
    max,
    ties,          // out = the row's gradient divided by how many of its messages, and of zero, equal the largest
    max_backward,  // rows are sources: sum over the edges whose message is the largest of their target
};

template <typename T>
struct Aggregate {
    int64_t num_rows;
    int columns, channels_per_weight, num_threads;  // channels_per_weight: 0 without weights
    const int32_t *rowptr, *col, *edge;
    const T* pulled;   // [nodes at the other end, columns]: x, or backward the gradient
    const T* weight;   // [edges, columns / channels_per_weight] or null
    const T* own;      // [rows, columns]: the largest messages for `ties`, x for `max_backward`
    const T* largest;  // [nodes at the other end, columns], for `max_backward`
    const T* grad;     // [rows, columns], for `ties` and the weights' gradient
    T* out;            // [rows, columns], or the weights' gradient
};

// The kernels of one instruction set.
template <typename T>
struct AggregateKernels {
    void (*pull)(const Aggregate<T>&, Pass);
    // Computes the gradient of every weight; the rows are targets. With `own`, only edges whose message is the largest get one.
    void (*weights)(const Aggregate<T>&);
};

}  // namespace molgcn
