// Python's view of RDKit's binary form: read_rdkit_binary.
#include "rdkit_binary.hpp"

#include <nanobind/nanobind.h>

namespace nb = nanobind;
using namespace nb::literals;

namespace molgcn {
namespace {

nb::object read_rdkit_binary(nb::bytes binary) {
    static thread_local RdkitBinary molecule;
    if (!molecule.read(reinterpret_cast<const uint8_t*>(binary.c_str()), binary.size())) return nb::none();
    return nb::make_tuple(nb::bytes(molecule.atoms.data(), molecule.atoms.size() * sizeof(AtomFields)),
                          nb::bytes(molecule.ends.data(), molecule.ends.size() * sizeof(uint16_t)));
}

}  // namespace

void bind_rdkit_binary(nb::module_& m) {
    m.def("read_rdkit_binary", &read_rdkit_binary, "binary"_a,
          "Atoms (eight bytes each, as AtomFields) and bonds (two uint16 each) of what Mol.ToBinary wrote, or None where it is not understood.");
}

}  // namespace molgcn
