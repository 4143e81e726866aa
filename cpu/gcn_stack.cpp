// Python's entry to the stack operator: addresses of checked, contiguous tensors in, the widest vectors of this machine chosen.
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "tiles.hpp"

namespace nb = nanobind;

namespace molgcn {

#define MOLGCN_DECLARE(isa)                          \
    namespace isa {                                  \
    extern const Kernels<float> float_kernels;       \
    extern const Kernels<double> double_kernels;     \
    double peak(int num_threads, long iterations);   \
    }
MOLGCN_DECLARE(portable)
#ifdef MOLGCN_X86
MOLGCN_DECLARE(avx2)
MOLGCN_DECLARE(avx512)
#endif

namespace {

struct InstructionSet {
    std::string name;
    const Kernels<float>* float_kernels;
    const Kernels<double>* double_kernels;
    double (*peak)(int num_threads, long iterations);
};

// Those that this machine has, the widest vectors first.
const std::vector<InstructionSet>& instruction_sets() {
    static const std::vector<InstructionSet> sets = [] {
        std::vector<InstructionSet> found;
#ifdef MOLGCN_X86
        __builtin_cpu_init();
        const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
        if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
            found.push_back({"avx512", &avx512::float_kernels, &avx512::double_kernels, &avx512::peak});
        }
        if (avx2) found.push_back({"avx2", &avx2::float_kernels, &avx2::double_kernels, &avx2::peak});
#endif
        found.push_back({"portable", &portable::float_kernels, &portable::double_kernels, &portable::peak});
        return found;
    }();
    return sets;
}

const InstructionSet* chosen = nullptr;

const InstructionSet& in_use() { return chosen != nullptr ? *chosen : instruction_sets().front(); }

template <typename T>
const Kernels<T>& kernels() {
    if constexpr (sizeof(T) == sizeof(float)) return *in_use().float_kernels;
    else return *in_use().double_kernels;
}

using Address = uintptr_t;

// Arguments of forward and backward alike; see molgcn/ops/gcn_stack_cpu.py.
struct Arguments {
    std::array<int64_t, 9> sizes;     // B, N, E, F, H, L, K, threads, bytes saved
    std::array<int, 6> options;       // pool, norm, residual, add_self_loops, last_activation, training
    std::array<double, 3> numbers;    // dropout, eps, momentum
    uint64_t seed;
    std::vector<Address> tensors;     // x, ptr, rowptr, col, saved, counts (null unless the batch is padded), then parameter after parameter:
                                      // weights, biases, norm weights and biases, running means and variances (where they are needed)
};

template <typename T>
T* pointer(Address address) {
    return reinterpret_cast<T*>(address);
}

template <typename T, typename Run>
void with_stack(const Arguments& a, const Run& run) {
    const auto [graphs, nodes, edges, in, hidden, layers, norms, most_threads, saved_bytes] = a.sizes;
    const auto *ptr = pointer<const int32_t>(a.tensors[1]), *rowptr = pointer<const int32_t>(a.tensors[2]), *col = pointer<const int32_t>(a.tensors[3]);
    const auto* counts = pointer<const int32_t>(a.tensors[5]);
    const int64_t used_nodes = counts != nullptr ? counts[1] : nodes, used_edges = counts != nullptr ? counts[2] : edges;
    if (used_nodes > nodes || used_edges > edges) throw std::invalid_argument("gcn_stack: counts are more than x and col have room for");
    check_pointers(ptr, graphs, rowptr, used_nodes, used_edges);
    const bool dropout = a.options[5] != 0 && a.numbers[0] > 0;
    const T* x = pointer<const T>(a.tensors[0]);
    const int threads = int(std::clamp<int64_t>(used_nodes / chunk_rows, 1, most_threads));
    const Rows<T> rows(x, int(in), ptr, rowptr, col, graphs, !dropout, threads);
    const int64_t gradient_bytes = sizeof(T) * (hidden * row_stride<T>(int(in)) + layers * (hidden + 3) * row_stride<T>(int(hidden)));
    const Tiles tiles(rows.row_ptr(), graphs, gradient_bytes);
    Stack<T> s{};
    s.num_graphs = graphs;
    s.num_nodes = used_nodes;
    s.partition = tiles.partition();
    s.num_threads = std::min(threads, s.partition.num_chunks);  // a chunk is the least that is worth waking one for
    rows.attach(s);
    s.in_channels = int(in);
    s.hidden_channels = int(hidden);
    s.num_layers = int(layers);
    s.num_norms = int(norms);
    s.x = x;
    s.ptr = ptr;
    const auto* table = reinterpret_cast<const T* const*>(a.tensors.data() + 6);
    for (const auto& [parameters, count] : {std::pair{&s.weights, layers}, {&s.biases, layers}, {&s.norm_weights, norms}, {&s.norm_biases, norms},
                                            {&s.running_means, norms}, {&s.running_vars, norms}}) {
        *parameters = table;
        table += count;
    }
    s.pool = Pool(a.options[0]);
    s.norm = Norm(a.options[1]);
    s.residual = a.options[2] != 0;
    s.last_activation = a.options[4] != 0;
    s.training = a.options[5] != 0;
    s.dropout = a.numbers[0];
    s.eps = a.numbers[1];
    s.momentum = a.numbers[2];
    s.seed = a.seed;
    s.saved = pointer<T>(a.tensors[4]);
    const Adjacency<T> adjacency(s, rowptr, col, a.options[3] != 0);
    adjacency.attach(s);
    run(s);
}

// Asks for huge pages for memory of many megabytes, which malloc maps anew for every batch: faults of 4 KB pages took longer than the layers.
void use_huge_pages(Address begin, int64_t bytes) {
#if defined(__linux__)
    constexpr Address page = 2 << 20;
    const Address first = (begin + page - 1) / page * page, last = (begin + bytes) / page * page;
    if (first < last) madvise(pointer<void>(first), last - first, MADV_HUGEPAGE);  // a wish: failing is no error
#endif
}

template <typename T>
void forward(const Arguments& a, const std::array<Address, 3>& outputs) {
    const nb::gil_scoped_release release;
    use_huge_pages(a.tensors[4], a.sizes[8]);
    with_stack<T>(a, [&](const Stack<T>& s) {
        kernels<T>().forward(s, {pointer<T>(outputs[0]), pointer<T>(outputs[1]), pointer<T>(outputs[2])});
    });
}

template <typename T>
void backward(const Arguments& a, const std::array<Address, 7>& gradients) {
    const nb::gil_scoped_release release;
    with_stack<T>(a, [&](const Stack<T>& s) {
        T* grad_x = pointer<T>(gradients[1]);
        if (grad_x != nullptr) std::fill(grad_x + s.num_nodes * s.in_channels, grad_x + a.sizes[1] * s.in_channels, T(0));
        kernels<T>().backward(s, {pointer<const T>(gradients[0]), grad_x, pointer<T>(gradients[2]), pointer<T>(gradients[3]),
                                  pointer<T>(gradients[4]), pointer<T>(gradients[5]), pointer<T>(gradients[6])});
    });
}

}  // namespace

const std::string& instruction_set_in_use() { return in_use().name; }

void bind_gcn_stack(nb::module_& m) {
    nb::class_<Arguments>(m, "StackArguments")
        .def("__init__", [](Arguments* self, std::array<int64_t, 9> sizes, std::array<int, 6> options, std::array<double, 3> numbers, int64_t seed,
                            std::vector<Address> tensors) { new (self) Arguments{sizes, options, numbers, uint64_t(seed), std::move(tensors)}; });
    m.def("gcn_stack_forward_float32", &forward<float>);
    m.def("gcn_stack_forward_float64", &forward<double>);
    m.def("gcn_stack_backward_float32", &backward<float>);
    m.def("gcn_stack_backward_float64", &backward<double>);
    m.def("instruction_sets", [] {
        std::vector<std::string> names;
        for (const InstructionSet& set : instruction_sets()) names.push_back(set.name);
        return names;
    }, "Instruction sets that this machine has, the one in use by default first.");
    m.def("peak_gflops", [](int num_threads, long iterations) {
        const nb::gil_scoped_release release;
        return in_use().peak(num_threads, iterations);
    }, nb::arg("num_threads"), nb::arg("iterations") = 10'000'000, "float32 GFLOP/s of multiply-adds on registers, in the instruction set in use.");
    m.def("use_instruction_set", [](const std::string& name) {
        for (const InstructionSet& set : instruction_sets()) {
            if (set.name == name) {
                chosen = &set;
                return;
            }
        }
        throw std::invalid_argument("this machine does not have the instruction set " + name);
    }, "Chooses the instruction set of the operators, for tests and benchmarks.");
}

}  // namespace molgcn
