// molgcn::gcn_conv on the CPU: one layer on any graph as plain arrays. Every instruction set's implementation shares these declarations.
#pragma once

#include <cstddef>
#include <cstdint>

namespace molgcn {

// A sparse matrix [num_nodes, num_nodes] by rows. Row i's entries lie at rowptr[i] .. rowptr[i + 1], and each has a column and a weight.
template <typename T>
struct Sparse {
    const int32_t* rowptr;
    const int32_t* col;
    const T* weight;
};

template <typename T>
struct Conv {
    int64_t num_nodes;
    int in_channels, out_channels, num_threads;
    const T* x;       // [num_nodes, in_channels]
    const T* weight;  // [out_channels, in_channels]
    const T* bias;    // [out_channels] or null
};

// The gradients of a call; null where one is not wanted.
template <typename T>
struct ConvGradients {
    const T* out;  // [num_nodes, out_channels], given
    T *x, *weight, *bias;
};

// The kernels of one instruction set.
template <typename T>
struct ConvKernels {
    // Computes out = Â x W^T + b. The rows of `adjacency` are targets.
    void (*forward)(const Conv<T>&, const Sparse<T>& adjacency, T* out);
    // Computes the gradients. The rows of `transposed` are sources.
    void (*backward)(const Conv<T>&, const Sparse<T>& transposed, const ConvGradients<T>&);
    // Computes the gradient of every entry's weight, in the order of `adjacency`, whose own weights are not read.
    void (*entries)(const Conv<T>&, const Sparse<T>& adjacency, const T* grad_out, T* grad_entries);
};

}  // namespace molgcn
