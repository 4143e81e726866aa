"""An RDKit molecule as bytes: eight for each atom, the fields of :class:`AtomFields`, and four for each bond, the numbers of its atoms.

To ask for atoms one by one takes longer than to parse their SMILES. So they come out of the form in which RDKit stores a molecule, one
call each, which `cpu/rdkit_binary.hpp` reads. That form is versioned and its atoms have looked the same for years, but it is RDKit's own:
the reader gives up on whatever it does not know, and is used only if it agrees with RDKit's functions on :data:`CHECKED`. Otherwise, and
where the extension was not built, atoms are asked for one by one.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from molgcn.data.atoms import AtomFields

log = logging.getLogger(__name__)

MolBytes = tuple[bytes, bytes]
_ATOM, _BOND, _KEY = struct.Struct("=BBbBBBBB"), struct.Struct("=HH"), struct.Struct("=Q")

CHECKED = (
    "C", "[NH4+].[O-]C=O", "c1ccc2[nH]ccc2c1", "C[C@H](F)N=C=O", r"F/C=C\Cl", "[13CH3][CH2]", "[O]", "N#CC1CC1", "CS(=O)(=O)O",
    "FP(F)(F)(F)F", "FS(F)(F)(F)(F)F", "[Fe+2]", "[SiH3][Si]", "C[N+](=O)[O-]", "[2H]OC", "[H][H]", "[NH3]->[Cu]", "C1CC2CCC1C2", "C" * 300,
)  # fmt: skip
"""SMILES with everything that the reader takes from RDKit's stored form."""


@cache
def mol_bytes_reader() -> Callable[[Any], MolBytes]:
    """A function that gives the atoms and the bonds of a sanitised `rdkit.Chem.Mol` of at most 65,535 atoms, in its order."""
    try:
        from molgcn._cpu import read_rdkit_binary
    except ImportError:
        return plain_mol_bytes
    from rdkit import Chem, __version__

    without = int(Chem.PropertyPickleOptions.NoConformers)
    for mol in map(Chem.MolFromSmiles, CHECKED):
        if read_rdkit_binary(mol.ToBinary(without)) != plain_mol_bytes(mol):
            log.warning("RDKit %s stores molecules in a form that is not known here; asking for atoms one by one is slower", __version__)
            return plain_mol_bytes

    def read(mol: Any) -> MolBytes:
        return read_rdkit_binary(mol.ToBinary(without)) or plain_mol_bytes(mol)

    return read


def plain_mol_bytes(mol: Any) -> MolBytes:
    """Atoms and bonds by RDKit's functions for them."""
    atoms = (mol.GetAtomWithIdx(index) for index in range(mol.GetNumAtoms()))
    bonds = (mol.GetBondWithIdx(index) for index in range(mol.GetNumBonds()))
    return (
        b"".join(_ATOM.pack(*read_atom(atom)) for atom in atoms),
        b"".join(_BOND.pack(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in bonds),
    )


def read_atom(atom: Any) -> AtomFields:
    """The fields of an `rdkit.Chem.Atom`."""
    return AtomFields(
        atom.GetAtomicNum(),
        min(atom.GetDegree(), 255),
        atom.GetFormalCharge(),
        min(atom.GetTotalNumHs(True), 255),
        min(atom.GetTotalNumHs(), 255),
        atom.GetNumExplicitHs(),
        int(atom.GetHybridization()),
        atom.GetIsAromatic() + 2 * atom.IsInRing(),
    )


def pack_atom(fields: AtomFields) -> int:
    """An atom's eight bytes as one number."""
    return int(_KEY.unpack(_ATOM.pack(*fields))[0])


def unpack_atom(key: int) -> AtomFields:
    """The fields in :func:`pack_atom`'s number."""
    return AtomFields(*_ATOM.unpack(_KEY.pack(key)))
