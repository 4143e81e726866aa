// The Python entry to the attention operator. Python passes addresses of checked, contiguous tensors; see molgcn/ops/attention_cpu.py.
#include "attention.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>

#include <array>

#include "dispatch.hpp"

namespace nb = nanobind;

namespace molgcn {

MOLGCN_DISPATCH(AttentionKernels, attention_kernels)

namespace {

using Address = uintptr_t;

Walk walk(const std::array<Address, 3>& rows) {
    return {pointer<const int32_t>(rows[0]), pointer<const int32_t>(rows[1]), pointer<const int32_t>(rows[2])};
}

// sizes: sources, targets, columns of source and targets, heads, channels, threads; tensors: source, targets, edges, att
template <typename T>
Attention<T> attention(const std::array<int64_t, 7>& sizes, const std::array<Address, 4>& tensors, const std::array<double, 2>& options,
                       uint64_t seed) {
    return {sizes[0],
            sizes[1],
            sizes[2],
            sizes[3],
            int(sizes[4]),
            int(sizes[5]),
            int(sizes[6]),
            pointer<const T>(tensors[0]),
            pointer<const T>(tensors[1]),
            pointer<const T>(tensors[2]),
            pointer<const T>(tensors[3]),
            options[0],
            options[1],
            seed};
}

template <typename T>
void forward(const std::array<int64_t, 7>& sizes, const std::array<Address, 4>& tensors, const std::array<double, 2>& options, uint64_t seed,
             const std::array<Address, 3>& by_target, const std::array<Address, 2>& results) {
    const nb::gil_scoped_release release;
    attention_kernels<T>().forward(attention<T>(sizes, tensors, options, seed), walk(by_target), pointer<T>(results[0]), pointer<T>(results[1]));
}

// given: gradient of the output, output, softmax; gradients: source, targets, edges, scores, att
template <typename T>
void backward(const std::array<int64_t, 7>& sizes, const std::array<Address, 4>& tensors, const std::array<double, 2>& options,
              uint64_t seed, const std::array<Address, 3>& by_target, const std::array<Address, 3>& by_source,
              const std::array<Address, 3>& given, const std::array<Address, 5>& gradients) {
    const nb::gil_scoped_release release;
    attention_kernels<T>().backward(attention<T>(sizes, tensors, options, seed), walk(by_target), walk(by_source),
                          {pointer<const T>(given[0]), pointer<const T>(given[1]), pointer<const T>(given[2]), pointer<T>(gradients[0]),
                           pointer<T>(gradients[1]), pointer<T>(gradients[2]), pointer<T>(gradients[3]), pointer<T>(gradients[4])});
}

}  // namespace

void bind_attention(nb::module_& m) {
    m.def("attention_forward_float32", &forward<float>);
    m.def("attention_forward_float64", &forward<double>);
    m.def("attention_backward_float32", &backward<float>);
    m.def("attention_backward_float64", &backward<double>);
}

}  // namespace molgcn
