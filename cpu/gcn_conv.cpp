// The Python entry to the layer operator. Python passes addresses of checked, contiguous tensors; see molgcn/ops/gcn_conv_cpu.py.
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>

#include <array>

#include "conv_graph.hpp"
#include "dispatch.hpp"
#include "gcn_conv.hpp"

namespace nb = nanobind;

namespace molgcn {

MOLGCN_DISPATCH(ConvKernels, conv_kernels)

namespace {

using Address = uintptr_t;
using Matrix = std::array<Address, 3>;  // rowptr, col, weight or index

template <typename T>
Sparse<T> sparse(const Matrix& m) {
    return {pointer<const int32_t>(m[0]), pointer<const int32_t>(m[1]), pointer<const T>(m[2])};
}

template <typename T>
Conv<T> conv(const std::array<int64_t, 4>& sizes, const std::array<Address, 3>& tensors) {
    return {sizes[0],  int(sizes[1]), int(sizes[2]), int(sizes[3]), pointer<const T>(tensors[0]), pointer<const T>(tensors[1]),
            pointer<const T>(tensors[2])};
}

// Sorts an edge list. row and col are int64 [E]; the results are int32 [N + 1], int32 [E + N] and int32 [E + N]. sizes: edges, rows,
// threads.
void sort_edge_list(Address row, Address col, const std::array<int64_t, 3>& sizes, bool add_loops, const Matrix& out) {
    const nb::gil_scoped_release release;
    sort_edges(pointer<const int64_t>(row), pointer<const int64_t>(col), sizes[0], sizes[1], add_loops, int(sizes[2]),
               {pointer<int32_t>(out[0]), pointer<int32_t>(out[1]), pointer<int32_t>(out[2])});
}

// Lists the entries of `in` (rowptr, col) by column: the row of each entry, and its index in `in`.
void transpose(const std::array<Address, 2>& in, int64_t num_rows, int64_t num_columns, int num_threads, const Matrix& out) {
    const nb::gil_scoped_release release;
    const int32_t* rowptr = pointer<const int32_t>(in[0]);
    std::vector<int32_t> target(rowptr[num_rows]);
    for (int64_t i = 0; i < num_rows; i++) std::fill(target.begin() + rowptr[i], target.begin() + rowptr[i + 1], int32_t(i));
    sort_edges(pointer<const int32_t>(in[1]), target.data(), rowptr[num_rows], num_columns, false, num_threads,
               {pointer<int32_t>(out[0]), pointer<int32_t>(out[1]), pointer<int32_t>(out[2])});
}

template <typename T>
Normalised<T> normalised(int64_t num_nodes, const Matrix& rows, Address edge_weight, double loop_weight) {
    return {num_nodes, pointer<const int32_t>(rows[0]), pointer<const int32_t>(rows[1]), pointer<const int32_t>(rows[2]),
            pointer<const T>(edge_weight), T(loop_weight)};
}

template <typename T>
void weights(int64_t num_nodes, int num_threads, const Matrix& rows, Address edge_weight, double loop_weight, Address scale, Address out) {
    const nb::gil_scoped_release release;
    normalised<T>(num_nodes, rows, edge_weight, loop_weight).weights(num_threads, pointer<T>(scale), pointer<T>(out));
}

template <typename T>
void weight_gradient(int64_t num_nodes, int num_threads, const Matrix& rows, Address edge_weight, double loop_weight, Address scale,
                     Address grad_entries, const Matrix& by_source, Address grad_edges) {
    const nb::gil_scoped_release release;
    normalised<T>(num_nodes, rows, edge_weight, loop_weight)
        .gradient(num_threads, pointer<const T>(scale), pointer<const T>(grad_entries), pointer<const int32_t>(by_source[0]),
                  pointer<const int32_t>(by_source[1]), pointer<const int32_t>(by_source[2]), pointer<T>(grad_edges));
}

template <typename T>
void forward(const std::array<int64_t, 4>& sizes, const std::array<Address, 3>& tensors, const Matrix& adjacency, Address out) {
    const nb::gil_scoped_release release;
    conv_kernels<T>().forward(conv<T>(sizes, tensors), sparse<T>(adjacency), pointer<T>(out));
}

template <typename T>
void backward(const std::array<int64_t, 4>& sizes, const std::array<Address, 3>& tensors, const Matrix& transposed,
              const std::array<Address, 4>& gradients) {
    const nb::gil_scoped_release release;
    conv_kernels<T>().backward(conv<T>(sizes, tensors), sparse<T>(transposed),
                          {pointer<const T>(gradients[0]), pointer<T>(gradients[1]), pointer<T>(gradients[2]), pointer<T>(gradients[3])});
}

template <typename T>
void entries(const std::array<int64_t, 4>& sizes, const std::array<Address, 3>& tensors, const Matrix& adjacency, Address grad_out,
             Address grad_entries) {
    const nb::gil_scoped_release release;
    conv_kernels<T>().entries(conv<T>(sizes, tensors), sparse<T>(adjacency), pointer<const T>(grad_out), pointer<T>(grad_entries));
}

template <typename T>
void bind(nb::module_& m, const std::string& dtype) {
    m.def(("conv_weights_" + dtype).c_str(), &weights<T>);
    m.def(("conv_weight_gradient_" + dtype).c_str(), &weight_gradient<T>);
    m.def(("conv_forward_" + dtype).c_str(), &forward<T>);
    m.def(("conv_backward_" + dtype).c_str(), &backward<T>);
    m.def(("conv_entries_" + dtype).c_str(), &entries<T>);
}

}  // namespace

void bind_gcn_conv(nb::module_& m) {
    m.def("conv_sort_edges", &sort_edge_list);
    m.def("conv_transpose", &transpose);
    bind<float>(m, "float32");
    bind<double>(m, "float64");
}

}  // namespace molgcn
