// molgcn::head_loss on the CPU as plain arrays: linear maps, or none, with relu between, and the loss of their predictions. Every
// instruction set's implementation shares these declarations.
#pragma once

#include <cstddef>
#include <cstdint>

namespace molgcn {

enum class Loss : int { mse, l1, huber };

template <typename T>
struct HeadLoss {
    int64_t num_graphs;
    int num_linears;
    const int64_t* widths;  // [num_linears + 1], of the input first
    const T* const* weights;  // [widths[i + 1], widths[i]]
    const T* const* biases;
    Loss loss;
    T delta;         // where huber turns from square to linear
    const T *x, *target;   // [num_graphs, widths[0]], [num_graphs, targets], NaN = missing
    const T *mean, *std;  // [targets]
    T* hidden;  // outputs of all maps but the last, one after the other [num_graphs, width]
    T* derivatives;  // [num_graphs, targets], the terms' derivatives, 0 where missing
    double* sums;  // sum and number of the terms
    T* mean_loss;
};

template <typename T>
struct HeadGradients {
    T loss;  // given
    T* x;
    T *const *weights, *const *biases;
};

// The kernels of one instruction set.
template <typename T>
struct HeadKernels {
    void (*forward)(const HeadLoss<T>&);
    // Computes the gradients. Reads hidden, derivatives and sums.
    void (*backward)(const HeadLoss<T>&, const HeadGradients<T>&);
};

}  // namespace molgcn
