// The Python entry to the operator of networks of layers. Python passes addresses of checked, contiguous tensors; see
// molgcn/ops/layer_network/passes_cpu.py.
#include "layer_network.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "dispatch.hpp"
#include "huge_pages.hpp"
#include "tiles.hpp"

namespace nb = nanobind;

namespace molgcn {

MOLGCN_DISPATCH(LayerKernel, layer_pass)

namespace {

using Address = uintptr_t;

template <typename T>
T* const* pointers(const std::vector<Address>& addresses) {
    return reinterpret_cast<T* const*>(addresses.data());
}

// A batch's addresses and sizes; see molgcn/ops/layer_network/passes_cpu.py.
struct Batch {
    std::array<int64_t, 5> sizes;     // B, N, E, rows of the table of distinct bonds (-1: each bond has a row), threads
    std::array<Address, 4> graph;     // ptr, rowptr, col, code
    std::array<Address, 2> tensors;   // pooled rows or their gradient; moments
    std::array<double, 3> numbers;    // dropout, eps, momentum
    int64_t seed;
    std::vector<std::pair<Address, int64_t>> fresh;  // memory that nobody has written yet, and its bytes
    std::array<std::vector<Address>, 4> lists;       // memory; parameters; their gradients; running means, variances, and both after this batch
};

// Rows of a tile of wide layers. Their weights and sums of gradients do not fit into a cache beside a tile; larger tiles read and write
// them a third as often.
constexpr int wide_tile_rows = 3 * tile_rows;

// Reads the next list of structs, which consist of ints only.
template <typename Struct>
const Struct* take(const int*& next, int count) {
    const Struct* taken = reinterpret_cast<const Struct*>(next);
    next += count * (sizeof(Struct) / sizeof(int));
    return taken;
}

// Reads what is static about a pass: the numbers of LayerPass one after another, then its lists.
LayerPass read_pass(const int* next) {
    LayerPass pass{};
    for (int* number : {&pass.num_segments, &pass.num_buffers, &pass.num_memory, &pass.num_norms, &pass.num_parameters, &pass.num_tables,
                        &pass.num_attends, &pass.buffer_columns[0], &pass.buffer_columns[1], &pass.channels, &pass.backward, &pass.pool}) {
        *number = *next++;
    }
    pass.segments = take<Segment>(next, pass.num_segments);
    pass.instructions = take<Instruction>(next, pass.num_instructions());
    pass.buffers = take<Buffer>(next, pass.num_buffers);
    pass.memory = take<Memory>(next, pass.num_memory);
    pass.norms = take<NormOptions>(next, pass.num_norms);
    pass.parameters = take<Shape>(next, pass.num_parameters);
    pass.table_widths = take<int>(next, pass.num_tables);
    pass.attends = take<AttendOptions>(next, pass.num_attends);
    return pass;
}

template <typename T>
void set_graph(const Batch& batch, LayerRun<T>& run) {
    run.ptr = pointer<const int32_t>(batch.graph[0]);
    run.rowptr = pointer<const int32_t>(batch.graph[1]);
    run.col = pointer<const int32_t>(batch.graph[2]);
    run.code = pointer<const int32_t>(batch.graph[3]);
    run.num_graphs = batch.sizes[0];
    run.num_nodes = std::clamp<int64_t>(run.ptr[run.num_graphs], 0, batch.sizes[1]);
    run.num_edges = std::clamp<int64_t>(run.rowptr[run.num_nodes], 0, batch.sizes[2]);
    run.num_table_rows = std::max<int64_t>(batch.sizes[3], 0);
    check_pointers("layer_network", run.ptr, run.num_graphs, run.rowptr, run.num_nodes, run.num_edges);
    bool outside = false, unknown = false;
    for (int64_t g = 0; g < run.num_graphs; g++) {
        const int first = run.ptr[g], last = run.ptr[g + 1];
        for (int e = run.rowptr[first]; e < run.rowptr[last]; e++) outside |= run.col[e] < first || run.col[e] >= last;
    }
    for (int64_t e = 0; run.code != nullptr && e < run.num_edges; e++) unknown |= run.code[e] < 0 || run.code[e] >= run.num_table_rows;
    if (outside) throw std::invalid_argument("layer_network: col has an atom of another molecule; bonds must stay inside their molecule");
    if (unknown) throw std::invalid_argument("layer_network: code has a number outside 0 .. rows of bonds - 1");
}

template <typename T>
void set_tensors(const Batch& batch, LayerRun<T>& run) {
    const auto& [memory, parameters, gradients, statistics] = batch.lists;
    const NormOptions* norms = run.pass.norms;
    const auto of_batch = std::count_if(norms, norms + run.pass.num_norms, [](const NormOptions& each) { return each.batch_norm >= 0; });
    run.memory = pointers<T>(memory);
    run.parameters = pointers<const T>(parameters);
    run.grad_parameters = pointers<T>(gradients);
    run.running_means = pointers<const T>(statistics);
    run.running_vars = run.running_means + of_batch;
    run.new_means = pointers<T>(statistics) + 2 * of_batch;
    run.new_vars = run.new_means + of_batch;
    run.pooled = pointer<T>(batch.tensors[0]);
    run.pooled_stride = run.pass.num_pooled() * run.pass.channels;
    run.moments = pointer<T>(batch.tensors[1]);
    run.dropout = batch.numbers[0];
    run.eps = batch.numbers[1];
    run.momentum = batch.numbers[2];
    run.seed = uint64_t(batch.seed);
}

template <typename T>
int64_t gradient_bytes(const LayerRun<T>& run) {
    int64_t numbers = 0;
    for (int p = 0; p < run.pass.num_parameters; p++) numbers += int64_t{run.pass.parameters[p].rows} * row_stride<T>(run.pass.parameters[p].columns);
    for (int t = 0; t < run.pass.num_tables; t++) numbers += run.num_table_rows * row_stride<T>(run.pass.table_widths[t]);
    return numbers * int64_t(sizeof(T));
}

// Returns (bonds at each atom)^-1/2 where a gather is normalised, else an empty vector.
template <typename T>
std::vector<double> scales(const LayerRun<T>& run) {
    std::vector<double> found;
    for (int i = 0; i < run.pass.num_instructions(); i++) {
        const Aggregation kind = Aggregation(run.pass.instructions[i].kind);
        if (kind != Aggregation::gcn && kind != Aggregation::gcn_loops) continue;
        for (int64_t atom = 0; atom < run.num_nodes; atom++) {
            found.push_back(inverse_root_degree(run.rowptr, run.col, atom, kind == Aggregation::gcn_loops));
        }
        break;  // all gathers of a network are of one kind
    }
    return found;
}

// Returns the position of every bond's reverse where a step needs it, else an empty vector. The r-th bond from v to w pairs with the r-th bond
// from w to v.
template <typename T>
std::vector<int32_t> reverses(const LayerRun<T>& run) {
    const Instruction *first = run.pass.instructions, *last = first + run.pass.num_instructions();
    std::vector<int32_t> found;
    if (std::none_of(first, last, [](const Instruction& each) { return each.op >= Op::expand && each.op <= Op::add_grad; })) return found;
    found.resize(run.num_edges);
    for (int target = 0; target < run.num_nodes; target++) {
        for (int e = run.rowptr[target], rank = 0; e < run.rowptr[target + 1]; e++) {
            const int source = run.col[e];
            rank = e > run.rowptr[target] && run.col[e - 1] == source ? rank + 1 : 0;
            int at = run.rowptr[source];
            while (at < run.rowptr[source + 1] && run.col[at] < target) at++;
            at += rank;
            if (at >= run.rowptr[source + 1] || run.col[at] != target)
                throw std::invalid_argument("layer_network: a bond has no reverse; bonds must be sorted by target, then source, and go both ways");
            found[e] = at;
        }
    }
    return found;
}

template <typename T>
void clear_padding(const Batch& batch, const LayerRun<T>& run) {
    for (int m = 0; m < run.pass.num_memory; m++) {
        const Memory& memory = run.pass.memory[m];
        if (!memory.output || (memory.kind == 1 && batch.sizes[3] >= 0)) continue;
        T* rows = run.memory[m];
        std::fill(rows + (memory.kind > 0 ? run.num_edges : run.num_nodes) * memory.stride, rows + batch.sizes[memory.kind > 0 ? 2 : 1] * memory.stride, T(0));
    }
}

template <typename T>
void run_pass(Address numbers, const Batch& batch) {
    const nb::gil_scoped_release release;
    for (const auto& [begin, bytes] : batch.fresh) use_huge_pages(begin, bytes);
    LayerRun<T> run{};
    run.pass = read_pass(pointer<const int>(numbers));
    set_graph(batch, run);
    const Tiles tiles(run.ptr, run.num_graphs, gradient_bytes(run), run.pass.channels > 128 || gradient_bytes(run) > (1 << 20) ? wide_tile_rows : tile_rows);
    run.partition = tiles.partition();
    run.num_threads = int(std::min<int64_t>(batch.sizes[4], run.partition.num_chunks));
    for (int t = 0; t < run.partition.num_tiles; t++) {
        const Tile& tile = run.partition.tiles[t];
        run.max_bonds = std::max(run.max_bonds, run.rowptr[tile.first_row + tile.num_rows] - run.rowptr[tile.first_row]);
    }
    const std::vector<double> scale = scales(run);
    run.scale = scale.data();
    const std::vector<int32_t> reverse = reverses(run);
    run.reverse = reverse.data();
    set_tensors(batch, run);
    layer_pass<T>()(run);
    clear_padding(batch, run);
}

}  // namespace

void bind_layer_network(nb::module_& m) {
    nb::class_<Batch>(m, "LayerBatch")
        .def("__init__", [](Batch* self, std::array<int64_t, 5> sizes, std::array<Address, 4> graph, std::array<Address, 2> tensors,
                            std::array<double, 3> numbers, int64_t seed, std::vector<std::pair<Address, int64_t>> fresh,
                            std::array<std::vector<Address>, 4> lists) {
            new (self) Batch{sizes, graph, tensors, numbers, seed, std::move(fresh), std::move(lists)};
        });
    m.def("layer_pass_float32", &run_pass<float>);
    m.def("layer_pass_float64", &run_pass<double>);
}

}  // namespace molgcn
