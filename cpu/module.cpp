// The Python module molgcn._cpu: the CPU side of the fused operators and of the data path.
#include <nanobind/nanobind.h>

#include <omp.h>

#include "huge_pages.hpp"

namespace nb = nanobind;

namespace molgcn {
void bind_gcn_network(nb::module_& m);
void bind_collate(nb::module_& m);
void bind_gcn_conv(nb::module_& m);
void bind_attention(nb::module_& m);
void bind_gine(nb::module_& m);
void bind_aggregate(nb::module_& m);
void bind_head_loss(nb::module_& m);
void bind_layer_network(nb::module_& m);
void bind_rdkit_binary(nb::module_& m);
void bind_random_walk(nb::module_& m);
}

NB_MODULE(_cpu, m) {
    m.doc() = "C++ operators of molgcn";
    m.attr("FORMAT") = MOLGCN_FORMAT;
    m.def("max_threads", &omp_get_max_threads, "Threads that OpenMP would use by default.");
    m.def("use_huge_pages", &molgcn::use_huge_pages, "Asks for huge pages for new memory, given its address and its bytes.");
    molgcn::bind_gcn_network(m);
    molgcn::bind_collate(m);
    molgcn::bind_gcn_conv(m);
    molgcn::bind_attention(m);
    molgcn::bind_gine(m);
    molgcn::bind_aggregate(m);
    molgcn::bind_head_loss(m);
    molgcn::bind_layer_network(m);
    molgcn::bind_rdkit_binary(m);
    molgcn::bind_random_walk(m);
}
