// molgcn::gine_aggregate on the CPU as plain arrays. Every instruction set's implementation shares these declarations.
#pragma once

#include <cstdint>

#include "attention.hpp"

namespace molgcn {

template <typename T>
struct Gine {
    int64_t num_sources, num_targets;
    int columns, num_threads;
    const T *x, *edges;  // [num_sources, columns], [edges, columns]
};

// The kernels of one instruction set.
template <typename T>
struct GineKernels {
    void (*forward)(const Gine<T>&, const Walk& by_target, T* out);
    void (*backward)(const Gine<T>&, const Walk& by_source, const T* grad_out, T* grad_x, T* grad_edges);
};

}  // namespace molgcn
