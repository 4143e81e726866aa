// The Python entry to networks of graph convolutions alone. Python passes addresses of checked, contiguous tensors, and the kernels with the
// widest vectors of this machine run.
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "dispatch.hpp"
#include "huge_pages.hpp"
#include "tiles.hpp"

namespace nb = nanobind;

namespace molgcn {

#define MOLGCN_DECLARE(isa)                          \
    namespace isa {                                  \
    extern const Kernels<float> float_kernels;       \
    extern const Kernels<double> double_kernels;     \
    double peak(int num_threads, long iterations);   \
    }
MOLGCN_IF_PORTABLE(MOLGCN_DECLARE(portable))
MOLGCN_IF_AVX2(MOLGCN_DECLARE(avx2))
MOLGCN_IF_AVX512(MOLGCN_DECLARE(avx512))

namespace {

struct InstructionSet {
    std::string name;
    const Kernels<float>* float_kernels;
    const Kernels<double>* double_kernels;
    double (*peak)(int num_threads, long iterations);
};

// Returns the compiled instruction sets that this machine has, the widest vectors first.
const std::vector<InstructionSet>& instruction_sets() {
    static const std::vector<InstructionSet> sets = [] {
        std::vector<InstructionSet> found;
#if defined(MOLGCN_HAS_AVX2) || defined(MOLGCN_HAS_AVX512)
        __builtin_cpu_init();
        [[maybe_unused]] const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
#ifdef MOLGCN_HAS_AVX512
        if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
            found.push_back({"avx512", &avx512::float_kernels, &avx512::double_kernels, &avx512::peak});
        }
#endif
        MOLGCN_IF_AVX2(if (avx2) found.push_back({"avx2", &avx2::float_kernels, &avx2::double_kernels, &avx2::peak});)
        MOLGCN_IF_PORTABLE(found.push_back({"portable", &portable::float_kernels, &portable::double_kernels, &portable::peak});)
        return found;
    }();
    return sets;
}

const InstructionSet* chosen = nullptr;

const InstructionSet& in_use() { return chosen != nullptr ? *chosen : instruction_sets().at(0); }

template <typename T>
const Kernels<T>& kernels() {
    if constexpr (sizeof(T) == sizeof(float)) return *in_use().float_kernels;
    else return *in_use().double_kernels;
}

using Address = uintptr_t;

// The arguments of forward and of backward; see molgcn/ops/gcn_cpu.py.
struct Arguments {
    std::array<int64_t, 9> sizes;     // B, N, E, F, H, L, K, threads, bytes saved
    std::array<int, 6> options;       // pool, norm, residual, add_self_loops, last_activation, training
    std::array<double, 3> numbers;    // dropout, eps, momentum
    uint64_t seed;
    std::vector<Address> tensors;     // x, ptr, rowptr, col, saved, counts (null unless the batch is padded), then parameter after parameter:
                                      // weights, biases, norm weights and biases, running means and variances (where they are needed)
};

constexpr int first_parameter = 6;  // in Arguments::tensors

template <typename T>
T* pointer(Address address) {
    return reinterpret_cast<T*>(address);
}

// A batch as the kernels take it, with rows, tiles and adjacency laid out.
template <typename T>
class Layout {
public:
    explicit Layout(const Arguments& a)
        : threads_(checked_threads(a)),
          rows_(pointer<const T>(a.tensors[0]), int(a.sizes[3]), index(a, 1), index(a, 2), index(a, 3), a.sizes[0],
                !(a.options[5] != 0 && a.numbers[0] > 0), threads_),
          tiles_(rows_.row_ptr(), a.sizes[0], gradient_bytes(a)),
          problem_(problem(a)),
          adjacency_(problem_, index(a, 2), index(a, 3), a.options[3] != 0) {
        adjacency_.attach(problem_);
    }

    const Problem<T>& operator*() const { return problem_; }

private:
    static const int32_t* index(const Arguments& a, int number) { return pointer<const int32_t>(a.tensors[number]); }
    static int64_t used_nodes(const Arguments& a) { return index(a, 5) != nullptr ? index(a, 5)[1] : a.sizes[1]; }

    static int checked_threads(const Arguments& a) {
        const int64_t nodes = used_nodes(a), edges = index(a, 5) != nullptr ? index(a, 5)[2] : a.sizes[2];
        if (nodes > a.sizes[1] || edges > a.sizes[2]) throw std::invalid_argument("layer_network: counts are more than x and col have room for");
        check_pointers("layer_network", index(a, 1), a.sizes[0], index(a, 2), nodes, edges);
        return int(std::clamp<int64_t>(nodes / chunk_rows, 1, a.sizes[7]));
    }

    static int64_t gradient_bytes(const Arguments& a) {
        const int64_t in = a.sizes[3], hidden = a.sizes[4], layers = a.sizes[5];
        return sizeof(T) * (hidden * row_stride<T>(int(in)) + layers * (hidden + 3) * row_stride<T>(int(hidden)));
    }

    Problem<T> problem(const Arguments& a) const {
        const int64_t layers = a.sizes[5], norms = a.sizes[6];
        Problem<T> s{};
        s.num_graphs = a.sizes[0];
        s.num_nodes = used_nodes(a);
        s.partition = tiles_.partition();
        s.num_threads = std::min(threads_, s.partition.num_chunks);  // a chunk is the least work that is worth waking a thread for
        rows_.attach(s);
        s.in_channels = int(a.sizes[3]);
        s.hidden_channels = int(a.sizes[4]);
        s.num_layers = int(layers);
        s.num_norms = int(norms);
        s.x = pointer<const T>(a.tensors[0]);
        s.ptr = index(a, 1);
        const auto* table = reinterpret_cast<const T* const*>(a.tensors.data() + first_parameter);
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
        return s;
    }

    int threads_;
    Rows<T> rows_;
    Tiles tiles_;
    Problem<T> problem_;
    Adjacency<T> adjacency_;
};

template <typename T>
void run_backward(const Problem<T>& s, int64_t nodes, const std::array<Address, 7>& gradients) {
    T* grad_x = pointer<T>(gradients[1]);
    if (grad_x != nullptr) std::fill(grad_x + s.num_nodes * s.in_channels, grad_x + nodes * s.in_channels, T(0));
    kernels<T>().backward(s, {pointer<const T>(gradients[0]), grad_x, pointer<T>(gradients[2]), pointer<T>(gradients[3]),
                              pointer<T>(gradients[4]), pointer<T>(gradients[5]), pointer<T>(gradients[6])});
}

template <typename T>
void forward(const Arguments& a, const std::array<Address, 3>& outputs) {
    const nb::gil_scoped_release release;
    use_huge_pages(a.tensors[4], a.sizes[8]);
    const Layout<T> layout(a);
    std::vector<T*> statistics;
    for (const Address block : {outputs[1], outputs[2]}) {
        for (int64_t l = 0; l < a.sizes[6]; l++) statistics.push_back(pointer<T>(block) + l * a.sizes[4]);
    }
    kernels<T>().forward(*layout, {pointer<T>(outputs[0]), statistics.data(), statistics.data() + a.sizes[6]});
}

template <typename T>
void backward(const Arguments& a, const std::array<Address, 7>& gradients) {
    const nb::gil_scoped_release release;
    run_backward(*Layout<T>(a), a.sizes[1], gradients);
}

// Forward and backward over batch after batch of a training run. Parameters, gradients and statistics stay where they are, and backward
// uses what forward has laid out.
template <typename T>
class BoundNetwork {
public:
    // Binds parameters and gradients. `arguments` are those of some batch, `gradients` those of backward (the first two are not used),
    // `num_batches_tracked` one int64 for each batch norm.
    BoundNetwork(const Arguments& arguments, const std::array<Address, 7>& gradients, const std::vector<Address>& num_batches_tracked)
        : arguments_(arguments), gradients_(gradients), num_batches_tracked_(num_batches_tracked) {}

    // Runs forward and updates running statistics in place. sizes: B, N, E, threads; tensors: x, ptr, rowptr, col, saved, pooled.
    void forward(const std::array<int64_t, 4>& sizes, uint64_t seed, const std::array<Address, 6>& tensors) {
        const nb::gil_scoped_release release;
        std::copy(sizes.begin(), sizes.begin() + 3, arguments_.sizes.begin());
        arguments_.sizes[7] = sizes[3];
        arguments_.seed = seed;
        std::copy(tensors.begin(), tensors.begin() + 5, arguments_.tensors.begin());
        layout_.emplace(arguments_);
        T* const* statistics = reinterpret_cast<T* const*>(arguments_.tensors.data() + first_parameter + 2 * (arguments_.sizes[5] + arguments_.sizes[6]));
        kernels<T>().forward(**layout_, {pointer<T>(tensors[5]), statistics, statistics + arguments_.sizes[6]});
        for (const Address count : num_batches_tracked_) ++*pointer<int64_t>(count);
    }

    // Writes the gradients of the batch that forward took last. grad_x may be null.
    void backward(Address grad_pooled, Address grad_x) {
        const nb::gil_scoped_release release;
        if (!layout_) throw std::logic_error("layer_network: backward comes after forward");
        gradients_[0] = grad_pooled;
        gradients_[1] = grad_x;
        run_backward(**layout_, arguments_.sizes[1], gradients_);
        layout_.reset();
    }

private:
    Arguments arguments_;
    std::array<Address, 7> gradients_;
    std::vector<Address> num_batches_tracked_;
    std::optional<Layout<T>> layout_;
};

template <typename T>
void bind_bound_network(nb::module_& m, const char* name) {
    nb::class_<BoundNetwork<T>>(m, name)
        .def(nb::init<const Arguments&, const std::array<Address, 7>&, const std::vector<Address>&>())
        .def("forward", [](BoundNetwork<T>& self, const std::array<int64_t, 4>& sizes, int64_t seed,
                           const std::array<Address, 6>& tensors) { self.forward(sizes, uint64_t(seed), tensors); })
        .def("backward", &BoundNetwork<T>::backward);
}

}  // namespace

const std::string& instruction_set_in_use() { return in_use().name; }

void bind_gcn_network(nb::module_& m) {
    nb::class_<Arguments>(m, "NetworkArguments")
        .def("__init__", [](Arguments* self, std::array<int64_t, 9> sizes, std::array<int, 6> options, std::array<double, 3> numbers, int64_t seed,
                            std::vector<Address> tensors) { new (self) Arguments{sizes, options, numbers, uint64_t(seed), std::move(tensors)}; });
    m.def("gcn_network_forward_float32", &forward<float>);
    m.def("gcn_network_forward_float64", &forward<double>);
    m.def("gcn_network_backward_float32", &backward<float>);
    m.def("gcn_network_backward_float64", &backward<double>);
    bind_bound_network<float>(m, "BoundNetworkFloat32");
    bind_bound_network<double>(m, "BoundNetworkFloat64");
    m.def("instruction_sets", [] {
        std::vector<std::string> names;
        for (const InstructionSet& set : instruction_sets()) names.push_back(set.name);
        return names;
    }, "Compiled instruction sets that this machine has, the one in use by default first.");
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
