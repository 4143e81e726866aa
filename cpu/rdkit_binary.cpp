// The Python entry to RDKit's binary form: read_rdkit_binary.
#include "rdkit_binary.hpp"

#include <nanobind/nanobind.h>

namespace nb = nanobind;
using namespace nb::literals;

namespace molgcn {
namespace {

template <typename T>
nb::bytes as_bytes(const std::vector<T>& values) {
    return nb::bytes(values.data(), values.size() * sizeof(T));
}

nb::object read_rdkit_binary(nb::bytes binary) {
    static thread_local RdkitBinary molecule;
    if (!molecule.read(reinterpret_cast<const uint8_t*>(binary.c_str()), binary.size())) return nb::none();
    return nb::make_tuple(as_bytes(molecule.packed), as_bytes(molecule.ends), as_bytes(molecule.bonds));
}

}  // namespace

void bind_rdkit_binary(nb::module_& m) {
    m.def("read_rdkit_binary", &read_rdkit_binary, "binary"_a,
          "Atoms (eight bytes each, packed AtomFields), the atoms of each bond (two uint16) and the bonds (four bytes each, packed BondFields) "
          "of what Mol.ToBinary wrote, or None where it is not understood.");
}

}  // namespace molgcn
