// The Python entry to aggregation. Python passes addresses of checked, contiguous tensors; see molgcn/ops/aggregate_cpu.py.
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>

#include <array>

#include "aggregate.hpp"
#include "dispatch.hpp"

namespace nb = nanobind;

namespace molgcn {

MOLGCN_DISPATCH(AggregateKernels, aggregate_kernels)

namespace {

using Address = uintptr_t;

// sizes: rows, columns, channels per weight, threads; graph: rowptr, col, edge; tensors: pulled, weight, own, largest, grad, out.
template <typename T>
Aggregate<T> aggregate(const std::array<int64_t, 4>& sizes, const std::array<Address, 3>& graph, const std::array<Address, 6>& tensors) {
    const auto values = [&](int i) { return pointer<const T>(tensors[i]); };
    const auto numbers = [&](int i) { return pointer<const int32_t>(graph[i]); };
    return {sizes[0],  int(sizes[1]), int(sizes[2]), int(sizes[3]), numbers(0), numbers(1),           numbers(2),
            values(0), values(1),     values(2),     values(3),     values(4),  pointer<T>(tensors[5])};
}

template <typename T>
void pull(const std::array<int64_t, 4>& sizes, const std::array<Address, 3>& graph, const std::array<Address, 6>& tensors, int pass) {
    const nb::gil_scoped_release release;
    aggregate_kernels<T>().pull(aggregate<T>(sizes, graph, tensors), Pass(pass));
}

template <typename T>
void weights(const std::array<int64_t, 4>& sizes, const std::array<Address, 3>& graph, const std::array<Address, 6>& tensors) {
    const nb::gil_scoped_release release;
    aggregate_kernels<T>().weights(aggregate<T>(sizes, graph, tensors));
}

}  // namespace

void bind_aggregate(nb::module_& m) {
    m.def("aggregate_pull_float32", &pull<float>);
    m.def("aggregate_pull_float64", &pull<double>);
    m.def("aggregate_weights_float32", &weights<float>);
    m.def("aggregate_weights_float64", &weights<double>);
}

}  // namespace molgcn
