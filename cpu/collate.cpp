// The Python entry to the data path: plan_tiles, leaf_rows, SlotCollator and PieceCollator.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "fill_tiles.hpp"
#include "collator.hpp"
#include "merge_leaves.hpp"
#include "piece.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace molgcn {
namespace {

template <class T>
using Array = nb::ndarray<T, nb::c_contig, nb::device::cpu>;
using Longs = Array<const int64_t>;
using Ints = Array<const int32_t>;
using Bytes = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

// Plans the batches [first, last): reorders each and appends its tile pointers. counts[batch] becomes their number.
void plan_batches(int64_t first, int64_t last, int64_t* order, const int64_t* batch_ptr, const int64_t* sizes, int tile_nodes,
                  std::vector<int32_t>& tile_ptr, int64_t* counts) {
    TileFilling planner(tile_nodes);
    for (int64_t batch = first; batch < last; ++batch) {
        const size_t before = tile_ptr.size();
        planner.plan(order + batch_ptr[batch], batch_ptr[batch + 1] - batch_ptr[batch], sizes, tile_ptr);
        counts[batch] = static_cast<int64_t>(tile_ptr.size() - before);
    }
}

void check_plan(const Array<int64_t>& order, const Longs& batch_ptr, const Longs& sizes, int tile_nodes) {
    if (tile_nodes < 1 || tile_nodes > TileFilling::most_nodes) throw std::invalid_argument("tile_nodes must be from 1 to 240");
    const int64_t batches = static_cast<int64_t>(batch_ptr.size()) - 1, count = static_cast<int64_t>(order.size());
    for (int64_t i = 0; i < count; ++i)
        if (order.data()[i] < 0 || order.data()[i] >= static_cast<int64_t>(sizes.size())) throw std::out_of_range("a molecule is not in the set");
    bool fits = batches >= 0 && batch_ptr.data()[0] == 0 && batch_ptr.data()[batches] == count;
    for (int64_t batch = 0; batch < batches; ++batch) fits = fits && batch_ptr.data()[batch] <= batch_ptr.data()[batch + 1];
    if (!fits) throw std::invalid_argument("batch_ptr does not fit order");
}

nb::tuple plan_tiles(Array<int64_t> order, Longs batch_ptr, Longs sizes, int tile_nodes) {
    constexpr int64_t kMoleculesAThread = 8192;
    auto tile_ptr = std::make_unique<std::vector<int32_t>>();
    auto starts = std::make_unique<std::vector<int64_t>>();
    {
        nb::gil_scoped_release release;
        check_plan(order, batch_ptr, sizes, tile_nodes);
        const int64_t batches = static_cast<int64_t>(batch_ptr.size()) - 1, count = static_cast<int64_t>(order.size());
        const int64_t cores = std::max(1u, std::thread::hardware_concurrency());
        const int64_t threads = std::max<int64_t>(1, std::min({cores, batches, count / kMoleculesAThread, int64_t{4}}));
        starts->resize(batches + 1);
        std::vector<std::vector<int32_t>> parts(threads);
        std::vector<std::thread> workers;
        for (int64_t i = 0; i < threads; ++i)
            workers.emplace_back(plan_batches, batches * i / threads, batches * (i + 1) / threads, order.data(), batch_ptr.data(), sizes.data(),
                                 tile_nodes, std::ref(parts[i]), starts->data() + 1);
        for (std::thread& worker : workers) worker.join();
        for (const auto& part : parts) tile_ptr->insert(tile_ptr->end(), part.begin(), part.end());
        for (int64_t batch = 0; batch < batches; ++batch) (*starts)[batch + 1] += (*starts)[batch];
    }
    const auto owned = [](auto vector) {
        auto* raw = vector.release();
        using V = std::remove_pointer_t<decltype(raw)>;
        nb::capsule owner(raw, [](void* p) noexcept { delete static_cast<V*>(p); });
        return nb::ndarray<nb::numpy, typename V::value_type, nb::ndim<1>>(raw->data(), {raw->size()}, owner);
    };
    return nb::make_tuple(owned(std::move(tile_ptr)), owned(std::move(starts)));
}

// The arrays of Python objects. They are kept alive as long as this object is.
class Arrays {
  public:
    template <class T>
    T* get(nb::handle object, const char* name) {
        Array<T> array;
        if (!nb::try_cast(object.attr(name), array, false)) throw nb::type_error((std::string("array of another type: ") + name).c_str());
        kept_.push_back(nb::object(object.attr(name)));
        return array.data();
    }

    Bytes bytes(nb::handle object, const char* name) {
        Bytes array;
        if (!nb::try_cast(object.attr(name), array, false)) throw nb::type_error((std::string("not an array: ") + name).c_str());
        kept_.push_back(nb::object(object.attr(name)));
        return array;
    }

  private:
    std::vector<nb::object> kept_;
};

int uint_bytes(const Bytes& array) {
    const nb::dlpack::dtype type = array.dtype();
    if (type != nb::dtype<uint8_t>() && type != nb::dtype<uint16_t>()) throw nb::type_error("expected uint8 or uint16");
    return type.bits / 8;
}

struct Uints {  // of one or two bytes
    const void* data;
    int bytes;
    explicit Uints(const Bytes& array) : data(array.data()), bytes(uint_bytes(array)) {}
    int operator[](int64_t i) const { return bytes == 1 ? static_cast<const uint8_t*>(data)[i] : static_cast<const uint16_t*>(data)[i]; }
};

void leaf_rows(Longs node_ptr, Bytes degree, Bytes neighbors, Bytes codes, Array<int32_t> out) {
    const Uints degrees(degree), sources(neighbors), features(codes);
    const nb::gil_scoped_release release;
    std::vector<int32_t> rowptr, row, copies;
    struct Bonds {
        const int32_t* rowptr;
        const Uints& sources;
        int64_t first;
        int begin(int i) const { return rowptr[i]; }
        int end(int i) const { return rowptr[i + 1]; }
        int source(int e) const { return sources[first + e]; }
    };
    int64_t edge = 0;
    for (size_t molecule = 0; molecule + 1 < node_ptr.size(); ++molecule) {
        const int64_t first = node_ptr.data()[molecule];
        const int count = static_cast<int>(node_ptr.data()[molecule + 1] - first);
        rowptr.assign(count + 1, 0);
        for (int i = 0; i < count; ++i) rowptr[i + 1] = rowptr[i] + degrees[first + i];
        row.resize(count);
        copies.resize(count);
        const auto alike = [&](int i, int j) { return features[first + i] == features[first + j]; };
        merge_leaves(count, Bonds{rowptr.data(), sources, edge}, alike, row.data(), copies.data());
        std::copy(row.begin(), row.end(), out.data() + first);
        edge += rowptr[count];
    }
}

template <class Target>
class PyCollator {
  public:
    PyCollator(nb::handle molecules, nb::handle first, nb::handle second, int threads)
        : collator_(packed(molecules, first.attr("features")), {target(first), target(second)}, threads) {}

    void start(nb::handle plan, int64_t first, int64_t last) {
        Arrays arrays;
        const Plan view{
            arrays.get<const int64_t>(plan, "order"),    arrays.get<const int64_t>(plan, "batch_ptr"),   arrays.get<const int64_t>(plan, "node_ptr"),
            arrays.get<const int64_t>(plan, "edge_ptr"), arrays.get<const int64_t>(plan, "tile_starts"), arrays.get<const int32_t>(plan, "tile_ptr"),
        };
        {
            nb::gil_scoped_release release;
            collator_.start(view, first, last);
        }
        plan_ = std::move(arrays);
    }

    int64_t next() {
        nb::gil_scoped_release release;
        return collator_.next();
    }

    void stop() {
        nb::gil_scoped_release release;
        collator_.stop();
    }

  private:
    Packed packed(nb::handle molecules, nb::handle features) {
        Packed result{};
        result.node_ptr = arrays_.get<const int64_t>(molecules, "node_ptr");
        result.edge_ptr = arrays_.get<const int64_t>(molecules, "edge_ptr");
        const Bytes degree = arrays_.bytes(molecules, "degree"), neighbors = arrays_.bytes(molecules, "neighbors");
        result.degree = degree.data();
        result.degree_bytes = uint_bytes(degree);
        result.neighbors = neighbors.data();
        result.neighbor_bytes = uint_bytes(neighbors);
        for (nb::handle array : features) along_axis(result, array).push_back(values(array));
        result.target_words = arrays_.get<const int32_t>(molecules, "target_words");
        result.num_target_words = nb::cast<int64_t>(nb::object(molecules.attr("target_words").attr("shape"))[nb::int_(1)]);
        return result;
    }

    // Returns the list of `all` that holds the arrays of the same axis.
    template <class All>
    static auto& along_axis(All& all, nb::handle array) {
        const std::string axis = nb::cast<std::string>(array.attr("axis"));
        return axis == "molecule" ? all.molecules : axis == "atom" ? all.atoms : all.bonds;
    }

    Features values(nb::handle array) {
        Features result{};
        const Bytes values = arrays_.bytes(array, "values");
        result.values = values.data();
        if (values.ndim() == 1) result.code_bytes = uint_bytes(values);
        else arrays_.get<const float>(array, "values");  // checks the type
        result.entry_bytes = nb::cast<int64_t>(array.attr("entry_bytes"));
        result.columns = nb::cast<int64_t>(array.attr("columns"));
        if (!array.attr("table").is_none()) {
            result.table = arrays_.get<const float>(array, "table");
            result.num_codes = nb::cast<int64_t>(nb::object(array.attr("table").attr("shape"))[nb::int_(0)]);
        }
        return result;
    }

    Target target(nb::handle object) {
        Target result{};
        for (nb::handle array : object.attr("features"))
            along_axis(result, array).push_back(writable(object, nb::cast<std::string>(array.attr("name")).c_str()));
        if constexpr (std::is_same_v<Target, Slot>) {
            result.ptr = arrays_.get<int32_t>(object, "ptr");
            result.rowptr = arrays_.get<int32_t>(object, "rowptr");
            result.col = arrays_.get<int32_t>(object, "col");
            result.indices = arrays_.get<int64_t>(object, "indices");
            result.counts = arrays_.get<int32_t>(object, "counts");
        } else {
            result.order = arrays_.get<int64_t>(object, "order");
            result.node_ptr = arrays_.get<int64_t>(object, "node_ptr");
            result.edge_ptr = arrays_.get<int64_t>(object, "edge_ptr");
            result.row_end = writable(object, "row_end");
            result.neighbors = writable(object, "neighbors");
            result.end_bytes = nb::cast<int>(object.attr("row_end").attr("itemsize"));
        }
        result.target_words = arrays_.get<int32_t>(object, "target_words");
        result.tile_ptr = arrays_.get<int32_t>(object, "tile_ptr");
        const nb::object capacity = object.attr("capacity");
        result.max_graphs = nb::cast<int64_t>(capacity.attr("graphs"));
        result.max_nodes = nb::cast<int64_t>(capacity.attr("nodes"));
        result.max_edges = nb::cast<int64_t>(capacity.attr("edges"));
        result.max_tiles = nb::cast<int64_t>(capacity.attr("tiles"));
        return result;
    }

    void* writable(nb::handle object, const char* name) { return const_cast<void*>(arrays_.bytes(object, name).data()); }

    Arrays arrays_, plan_;  // outlive the threads of collator_, which is destroyed first
    Collator<Target> collator_;
};

template <class Target>
void bind_collator(nb::module_& m, const char* name, const char* doc) {
    using C = PyCollator<Target>;
    nb::class_<C>(m, name, doc)
        .def(nb::init<nb::handle, nb::handle, nb::handle, int>(), "molecules"_a, "first"_a, "second"_a, "threads"_a)
        .def("start", &C::start, "plan"_a, "first"_a, "last"_a, "Begins to fill in the batches first ... last - 1 of a plan.")
        .def("next", &C::next, "Gives the last batch back and waits for the next: its number (slot: number % 2), or -1 at the end.")
        .def("stop", &C::stop, "Ends the filling.");
}

}  // namespace

void bind_collate(nb::module_& m) {
    m.def("plan_tiles", &plan_tiles, "order"_a, "batch_ptr"_a, "sizes"_a, "tile_nodes"_a,
          "Reorders the molecules of every batch tile after tile; returns the batches' tile pointers and where each batch's start.");
    m.def("leaf_rows", &leaf_rows, "node_ptr"_a, "degree"_a, "neighbors"_a, "codes"_a, "out"_a,
          "Writes the row of each atom, counted in its molecule, where equal leaves share one.");
    bind_collator<Slot>(m, "SlotCollator", "Threads that gather molecules into two slots in turn, one batch ahead of the reader.");
    bind_collator<Piece>(m, "PieceCollator", "Threads that gather molecules, still packed, into two pieces in turn, one batch ahead of the reader.");
}

}  // namespace molgcn
