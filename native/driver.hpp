// The CUDA driver, which is opened at run time, and kernels that it launches.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

using uint32 = std::uint32_t;
using uint64 = std::uint64_t;

// Structs of cuda.h
struct LaunchAttribute {
    uint32 id, unused;
    alignas(8) uint32 value[16];
};
struct LaunchConfig {
    uint32 grid[3], block[3], shared;
    void* stream;
    LaunchAttribute* attributes;
    uint32 num_attributes;
};
struct NodeParameters {  // CUDA_KERNEL_NODE_PARAMS_v2
    void* function;
    uint32 grid[3], block[3], shared;
    void **arguments, **extra;
    void *kernel, *context;
};
static_assert(sizeof(LaunchAttribute) == 72 && sizeof(LaunchConfig) == 56 && sizeof(NodeParameters) == 72, "the layout of cuda.h");
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
        library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (library_ == nullptr) throw std::runtime_error(std::string("the CUDA driver cannot be opened: ") + dlerror());
        const auto need = [&](const char* name, auto& function) {
            if (!find(name, function)) throw std::runtime_error(std::string("the CUDA driver is too old: it has no ") + name);
        };
        need("cuCtxPushCurrent_v2", push_);
        need("cuCtxPopCurrent_v2", pop_);
        need("cuLaunchKernelEx", launch_);
        need("cuGetErrorName", error_name_);
    }

    // Finds a function of the driver, which older drivers may not have.
    template <class Function>
    bool find(const char* name, Function*& function) const {
        function = reinterpret_cast<Function*>(dlsym(library_, name));
        return function != nullptr;
    }

    void push(uint64 context) const { check(push_(reinterpret_cast<void*>(context)), "the CUDA context"); }

    void pop() const noexcept {
        void* context;
        pop_(&context);
    }

    void launch(const Kernel& it, void* stream, void* arguments) const {
        LaunchAttribute attributes[3] = {};
        LaunchConfig config = {{it.grid, 1, 1}, {it.block, 1, 1}, it.shared, stream, attributes, 0};
        const auto add = [&](uint32 id, uint32 x, uint32 y, uint32 z) {
            LaunchAttribute& to = attributes[config.num_attributes++];
            to.id = id, to.value[0] = x, to.value[1] = y, to.value[2] = z;
        };
        if (it.cluster > 1) add(cluster_id, it.cluster, 1, 1);
        if (it.cooperative) add(cooperative_id, 1, 0, 0);
        if (it.overlap) add(overlap_id, 1, 0, 0);
        void* parameters[] = {arguments};
        const int error = launch_(&config, it.function, parameters, nullptr);
        if (error != 0) check(error, "CUDA kernel " + it.name);
    }

    void check(int error, const std::string& what) const {
        if (error == 0) return;
        const char* name = nullptr;
        error_name_(error, &name);
        throw std::runtime_error(what + ": " + (name == nullptr ? "error " + std::to_string(error) : name));
    }

private:
    void* library_;
    int (*push_)(void*);
    int (*pop_)(void**);
    int (*launch_)(const LaunchConfig*, void*, void**, void**);
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
