// Launches kernels through the CUDA driver, which is opened at run time: this module needs no CUDA toolkit and is not linked to PyTorch.
#include <dlfcn.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

namespace nb = nanobind;
using uint32 = std::uint32_t;
using uint64 = std::uint64_t;

namespace {

// CUlaunchAttribute and CUlaunchConfig of cuda.h
struct Attribute {
    uint32 id, unused;
    alignas(8) uint32 value[16];
};
struct Config {
    uint32 grid[3], block[3], shared;
    void* stream;
    Attribute* attributes;
    uint32 num_attributes;
};
static_assert(sizeof(Attribute) == 72 && sizeof(Config) == 56, "the layout of cuda.h");
constexpr uint32 cooperative_id = 2, cluster_id = 4, overlap_id = 6;  // CUlaunchAttributeID

struct Kernel {
    void* function;
    uint32 grid, block, shared, cluster;
    bool cooperative, overlap;
    std::string name;
};

class Driver {
public:
    explicit Driver(const std::string& path) {
        void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) throw std::runtime_error(std::string("the CUDA driver cannot be opened: ") + dlerror());
        find(library, "cuCtxPushCurrent_v2", push_);
        find(library, "cuCtxPopCurrent_v2", pop_);
        find(library, "cuLaunchKernelEx", launch_);
        find(library, "cuGetErrorName", error_name_);
    }

    void push(uint64 context) const { check(push_(reinterpret_cast<void*>(context)), "the CUDA context"); }

    void pop() const noexcept {
        void* context;
        pop_(&context);
    }

    void launch(const Kernel& it, uint64 stream, void* arguments) const {
        Attribute attributes[3] = {};
        Config config = {{it.grid, 1, 1}, {it.block, 1, 1}, it.shared, reinterpret_cast<void*>(stream), attributes, 0};
        const auto add = [&](uint32 id, uint32 x, uint32 y, uint32 z) {
            Attribute& to = attributes[config.num_attributes++];
            to.id = id, to.value[0] = x, to.value[1] = y, to.value[2] = z;
        };
        if (it.cluster > 1) add(cluster_id, it.cluster, 1, 1);
        if (it.cooperative) add(cooperative_id, 1, 0, 0);
        if (it.overlap) add(overlap_id, 1, 0, 0);
        void* parameters[] = {arguments};
        const int error = launch_(&config, it.function, parameters, nullptr);
        if (error != 0) check(error, "CUDA kernel " + it.name);
    }

private:
    void check(int error, const std::string& what) const {
        if (error == 0) return;
        const char* name = nullptr;
        error_name_(error, &name);
        throw std::runtime_error(what + ": " + (name == nullptr ? "error " + std::to_string(error) : name));
    }

    template <class Function>
    static void find(void* library, const char* name, Function*& function) {
        function = reinterpret_cast<Function*>(dlsym(library, name));
        if (function == nullptr) throw std::runtime_error(std::string("the CUDA driver is too old: it has no ") + name);
    }

    int (*push_)(void*);
    int (*pop_)(void**);
    int (*launch_)(const Config*, void*, void**, void**);
    int (*error_name_)(int, const char**);
};

// Makes a context current while it lives.
class Current {
public:
    Current(const Driver& driver, uint64 context) : driver_(driver) { driver_.push(context); }
    ~Current() { driver_.pop(); }
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

private:
    const Driver& driver_;
};

using KernelTuple = std::tuple<uint64, uint32, uint32, uint32, uint32, bool, bool, std::string>;

Kernel kernel_of(const KernelTuple& given) {
    const auto& [function, grid, block, shared, cluster, cooperative, overlap, name] = given;
    return {reinterpret_cast<void*>(function), grid, block, shared, cluster, cooperative, overlap, name};
}

using HoleTuple = std::tuple<uint32, uint32, uint64>;  // place in the arguments, number of the buffer, offset in the buffer
using CountTuple = std::tuple<uint32, uint32>;         // place in the arguments, number of the count
using LaunchTuple = std::tuple<KernelTuple, nb::bytes, std::vector<HoleTuple>, std::vector<CountTuple>>;

// Launches whose arguments are known but for addresses and counts.
class Plan {
public:
    Plan(const Driver& driver, const std::vector<LaunchTuple>& launches, uint32 num_buffers, uint32 num_counts)
        : driver_(driver), num_buffers_(num_buffers), num_counts_(num_counts) {
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
    void run(uint64 context, uint64 stream, const std::vector<uint64>& addresses, const std::vector<uint32>& counts) const {
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
        for (std::size_t i = 0; i < kernels_.size(); i++) driver_.launch(kernels_[i], stream, &arguments[begins_[i]]);
    }

private:
    const Driver& driver_;
    uint32 num_buffers_, num_counts_;
    std::vector<Kernel> kernels_;
    std::vector<uint32> begins_;
    std::vector<unsigned char> arguments_;
    std::vector<HoleTuple> holes_;
    std::vector<CountTuple> counts_;
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
                driver.launch(it, stream, reinterpret_cast<void*>(arguments));
            },
            nb::arg("context"), nb::arg("stream"), nb::arg("kernel"), nb::arg("arguments"));
    nb::class_<Plan>(m, "Plan")
        .def(nb::init<const Driver&, const std::vector<LaunchTuple>&, uint32, uint32>(), nb::arg("driver"), nb::arg("launches"),
             nb::arg("num_buffers"), nb::arg("num_counts"), nb::keep_alive<1, 2>())
        .def("run", &Plan::run, nb::arg("context"), nb::arg("stream"), nb::arg("addresses"), nb::arg("counts"));
}
