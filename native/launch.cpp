// Launches kernels through the CUDA driver: this module needs no CUDA toolkit and is not linked to PyTorch.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "driver.hpp"
#include "graph.hpp"

namespace nb = nanobind;

namespace {

using KernelTuple = std::tuple<uint64, uint32, uint32, uint32, uint32, bool, bool, std::string>;

Kernel kernel_of(const KernelTuple& given) {
    const auto& [function, grid, block, shared, cluster, cooperative, overlap, name] = given;
    return {reinterpret_cast<void*>(function), grid, block, shared, cluster, cooperative, overlap, name};
}

using HoleTuple = std::tuple<uint32, uint32, uint64>;  // place in the arguments, number of the buffer, offset in the buffer
using CountTuple = std::tuple<uint32, uint32>;         // place in the arguments, number of the count
using LaunchTuple = std::tuple<KernelTuple, nb::bytes, std::vector<HoleTuple>, std::vector<CountTuple>>;

// Launches whose arguments are known but for addresses and counts. From the second run on they are one graph.
class Plan {
public:
    Plan(const Driver& driver, const std::vector<LaunchTuple>& launches, uint32 num_buffers, uint32 num_counts)
        : driver_(driver), graphs_(driver), num_buffers_(num_buffers), num_counts_(num_counts) {
        for (const auto& [kernel, arguments, holes, counts] : launches) {
            arguments_.resize((arguments_.size() + 15) / 16 * 16);
            const uint32 begin = arguments_.size(), size = arguments.size();
            arguments_.insert(arguments_.end(), arguments.c_str(), arguments.c_str() + size);
            kernels_.push_back(kernel_of(kernel));
            begins_.push_back(begin);
            for (const auto& [place, buffer, offset] : holes) {
                if (place + sizeof(uint64) > size || buffer >= num_buffers) throw std::invalid_argument("a hole lies outside");
                holes_.push_back({begin + place, buffer, offset});
            }
            for (const auto& [place, count] : counts) {
                if (place + sizeof(uint32) > size || count >= num_counts) throw std::invalid_argument("a count lies outside");
                counts_.push_back({begin + place, count});
            }
        }
    }

    // Launches all kernels on a stream, given the address of every buffer.
    void run(uint64 context, uint64 stream, const std::vector<uint64>& addresses, const std::vector<uint32>& counts) {
        if (addresses.size() != num_buffers_ || counts.size() != num_counts_)
            throw std::invalid_argument("expected " + std::to_string(num_buffers_) + " addresses and " + std::to_string(num_counts_) + " counts");
        nb::gil_scoped_release other_threads_run;
        std::vector<unsigned char> arguments(arguments_);  // calls of several threads share a plan
        for (const auto& [place, buffer, offset] : holes_) {
            const uint64 address = addresses[buffer] + offset;
            std::memcpy(&arguments[place], &address, sizeof(address));
        }
        for (const auto& [place, count] : counts_) std::memcpy(&arguments[place], &counts[count], sizeof(uint32));
        const Current current(driver_, context);
        void* const to = reinterpret_cast<void*>(stream);
        const std::unique_lock<std::mutex> alone(running_, std::try_to_lock);
        if (alone.owns_lock() && graphs_.can_launch(to)) {
            if (num_runs_++ == 1 && kernels_.size() > 1) make_graph();
            if (graph_ != nullptr) return graph_->launch(to, arguments);
        }
        for (std::size_t i = 0; i < kernels_.size(); i++) driver_.launch(kernels_[i], to, &arguments[begins_[i]]);
    }

private:
    void make_graph() {
        try {
            graph_ = std::make_unique<Graph>(driver_, graphs_, kernels_, begins_, arguments_);
        } catch (const std::runtime_error&) {  // for want of memory: the kernels can still be launched one by one
        }
    }

    const Driver& driver_;
    const GraphDriver graphs_;
    uint32 num_buffers_, num_counts_;
    std::vector<Kernel> kernels_;
    std::vector<uint32> begins_;
    std::vector<unsigned char> arguments_;
    std::vector<HoleTuple> holes_;
    std::vector<CountTuple> counts_;
    std::mutex running_;  // guards the members below
    uint64 num_runs_ = 0;
    std::unique_ptr<Graph> graph_;
};

}  // namespace

NB_MODULE(_launch, m) {
    nb::set_leak_warnings(false);  // caches hold a driver until the process ends
    m.attr("FORMAT") = MOLGCN_FORMAT;
    nb::class_<Driver>(m, "Driver")
        .def(nb::init<const std::string&>(), nb::arg("path"))
        .def(
            "launch",
            [](const Driver& driver, uint64 context, uint64 stream, const KernelTuple& kernel, uint64 arguments) {
                const Kernel it = kernel_of(kernel);
                nb::gil_scoped_release other_threads_run;
                const Current current(driver, context);
                driver.launch(it, reinterpret_cast<void*>(stream), reinterpret_cast<void*>(arguments));
            },
            nb::arg("context"), nb::arg("stream"), nb::arg("kernel"), nb::arg("arguments"));
    nb::class_<Plan>(m, "Plan")
        .def(nb::init<const Driver&, const std::vector<LaunchTuple>&, uint32, uint32>(), nb::arg("driver"), nb::arg("launches"),
             nb::arg("num_buffers"), nb::arg("num_counts"), nb::keep_alive<1, 2>())
        .def("run", &Plan::run, nb::arg("context"), nb::arg("stream"), nb::arg("addresses"), nb::arg("counts"));
}
