// The Python entry to the head and its loss. Python passes addresses of checked, contiguous tensors; see molgcn/ops/head_loss_cpu.py.
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <utility>
#include <vector>

#include "dispatch.hpp"
#include "head_loss.hpp"

namespace nb = nanobind;

namespace molgcn {

MOLGCN_DISPATCH(HeadKernels, head_kernels)

namespace {

using Address = uintptr_t;

// The parameters and, for a call of forward or backward, the batch: x, target, hidden, derivatives, sums, mean_loss.
template <typename T>
class Bound {
public:
    Bound(std::vector<int64_t> widths, int loss, double delta, std::vector<Address> weights, std::vector<Address> biases, Address mean, Address std)
        : widths_(std::move(widths)), weights_(std::move(weights)), biases_(std::move(biases)) {
        head_.num_linears = int(weights_.size());
        head_.loss = Loss(loss);
        head_.delta = T(delta);
        head_.mean = reinterpret_cast<const T*>(mean);
        head_.std = reinterpret_cast<const T*>(std);
    }

    void forward(int64_t num_graphs, const std::array<Address, 6>& batch) const {
        const nb::gil_scoped_release release;
        head_kernels<T>().forward(of(num_graphs, batch));
    }

    void backward(int64_t num_graphs, const std::array<Address, 6>& batch, Address grad_loss, Address grad_x, const std::vector<Address>& grad_weights,
                  const std::vector<Address>& grad_biases) const {
        const nb::gil_scoped_release release;
        head_kernels<T>().backward(of(num_graphs, batch), {*reinterpret_cast<const T*>(grad_loss), reinterpret_cast<T*>(grad_x),
                                                      reinterpret_cast<T* const*>(grad_weights.data()), reinterpret_cast<T* const*>(grad_biases.data())});
    }

private:
    HeadLoss<T> of(int64_t num_graphs, const std::array<Address, 6>& batch) const {
        HeadLoss<T> head = head_;
        head.num_graphs = num_graphs;
        head.widths = widths_.data();
        head.weights = reinterpret_cast<const T* const*>(weights_.data());
        head.biases = reinterpret_cast<const T* const*>(biases_.data());
        head.x = reinterpret_cast<const T*>(batch[0]);
        head.target = reinterpret_cast<const T*>(batch[1]);
        head.hidden = reinterpret_cast<T*>(batch[2]);
        head.derivatives = reinterpret_cast<T*>(batch[3]);
        head.sums = reinterpret_cast<double*>(batch[4]);
        head.mean_loss = reinterpret_cast<T*>(batch[5]);
        return head;
    }

    HeadLoss<T> head_{};
    std::vector<int64_t> widths_;
    std::vector<Address> weights_, biases_;
};

template <typename T>
void bind(nb::module_& m, const char* name) {
    nb::class_<Bound<T>>(m, name)
        .def(nb::init<std::vector<int64_t>, int, double, std::vector<Address>, std::vector<Address>, Address, Address>())
        .def("forward", &Bound<T>::forward)
        .def("backward", &Bound<T>::backward);
}

}  // namespace

void bind_head_loss(nb::module_& m) {
    bind<float>(m, "HeadLossFloat32");
    bind<double>(m, "HeadLossFloat64");
}

}  // namespace molgcn
