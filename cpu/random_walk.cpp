// The Python entry to the random walks: walk_molecules.
#include "random_walk.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

namespace nb = nanobind;
using namespace nb::literals;

namespace molgcn {
namespace {

using Longs = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Matrix = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using List = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class Degree, class Neighbor>
void walk_molecules(Longs node_ptr, Longs edge_ptr, List<Degree> degree, List<Neighbor> neighbors, Matrix rwse, Matrix bond_rw) {
    const int64_t molecules = static_cast<int64_t>(node_ptr.size()) - 1;
    const int64_t *nodes = node_ptr.data(), *edges = edge_ptr.data();
    const auto atom_steps = static_cast<int64_t>(rwse.shape(1)), bond_steps = static_cast<int64_t>(bond_rw.shape(1));
    nb::gil_scoped_release release;
#pragma omp parallel
    {
        RandomWalk walk;
#pragma omp for schedule(dynamic, 64)
        for (int64_t i = 0; i < molecules; ++i)
            walk.run(degree.data() + nodes[i], neighbors.data() + edges[i], nodes[i + 1] - nodes[i],
                     {rwse.data() + nodes[i] * atom_steps, bond_rw.data() + edges[i] * bond_steps, atom_steps, bond_steps});
    }
}

template <class Degree, class Neighbor>
void bind(nb::module_& m) {
    m.def("walk_molecules", &walk_molecules<Degree, Neighbor>, "node_ptr"_a, "edge_ptr"_a, "degree"_a, "neighbors"_a, "rwse"_a, "bond_rw"_a,
          "Fills rwse [N, k] and bond_rw [E, l] of a packed set's molecules, whose arrays must fit together.");
}

}  // namespace

void bind_random_walk(nb::module_& m) {
    bind<uint8_t, uint8_t>(m);
    bind<uint8_t, uint16_t>(m);
    bind<uint16_t, uint8_t>(m);
    bind<uint16_t, uint16_t>(m);
}

}  // namespace molgcn
