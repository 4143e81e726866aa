// The Python entry to GINE's sums. Python passes addresses of checked, contiguous tensors; see molgcn/ops/gine_cpu.py.
#include "gine.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>

#include <array>

#include "dispatch.hpp"

namespace nb = nanobind;

namespace molgcn {

MOLGCN_DISPATCH(GineKernels, gine_kernels)

namespace {

using Rows = std::array<uintptr_t, 3>;

Walk walk(const Rows& rows) { return {pointer<const int32_t>(rows[0]), pointer<const int32_t>(rows[1]), pointer<const int32_t>(rows[2])}; }

// sizes: sources, targets, columns, threads; tensors: x, edges
template <typename T>
Gine<T> gine(const std::array<int64_t, 4>& sizes, const std::array<uintptr_t, 2>& tensors) {
    return {sizes[0], sizes[1], int(sizes[2]), int(sizes[3]), pointer<const T>(tensors[0]), pointer<const T>(tensors[1])};
}

template <typename T>
void forward(const std::array<int64_t, 4>& sizes, const std::array<uintptr_t, 2>& tensors, const Rows& by_target, uintptr_t out) {
    const nb::gil_scoped_release release;
    gine_kernels<T>().forward(gine<T>(sizes, tensors), walk(by_target), pointer<T>(out));
}

template <typename T>
void backward(const std::array<int64_t, 4>& sizes, const std::array<uintptr_t, 2>& tensors, const Rows& by_source, uintptr_t grad_out,
              uintptr_t grad_x, uintptr_t grad_edges) {
    const nb::gil_scoped_release release;
    gine_kernels<T>().backward(gine<T>(sizes, tensors), walk(by_source), pointer<const T>(grad_out), pointer<T>(grad_x),
                               pointer<T>(grad_edges));
}

}  // namespace

void bind_gine(nb::module_& m) {
    m.def("gine_forward_float32", &forward<float>);
    m.def("gine_forward_float64", &forward<double>);
    m.def("gine_backward_float32", &backward<float>);
    m.def("gine_backward_float64", &backward<double>);
}

}  // namespace molgcn
