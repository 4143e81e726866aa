"""Reads the atoms and bonds of an RDKit molecule as bytes.

Reading atoms one by one in Python takes longer than parsing their SMILES. Instead, `cpu/rdkit_binary.hpp` reads them from RDKit's pickle
format (`Mol.ToBinary`), with one call for each molecule. The format is versioned and the layout of its atoms has not changed for years, but
it is private to RDKit. The reader therefore gives up on anything unknown, and is used only if it agrees with RDKit's functions on
:data:`CHECKED`. Otherwise, and where the extension is not built, atoms are read one by one.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from molgcn.data.featurizers.fields import AtomFields, BondFields

log = logging.getLogger(__name__)

_ATOM, _ENDS, _BOND = struct.Struct("=Q"), struct.Struct("=HH"), struct.Struct("=I")

CHECKED = (
    "C", "[NH4+].[O-]C=O", "c1ccc2[nH]ccc2c1", "C[C@H](F)N=C=O", r"F/C=C\Cl", "[13CH3][CH2]", "[O]", "N#CC1CC1", "CS(=O)(=O)O",
    "FP(F)(F)(F)F", "FS(F)(F)(F)(F)F", "[Fe+2]", "[SiH3][Si]", "C[N+](=O)[O-]", "[2H]OC", "[H][H]", "[NH3]->[Cu]", "C1CC2CCC1C2", "C" * 300,
    "C/C=C/[C@@H](O)C=CC=O", "[Pt@SP1](F)(Cl)(Br)I", "C1CC1C1CCCCCCCCCCCCCCCCC1", "[Re]$[Re]", "C1CCCCC1" * 45, "[O][O]", "[NH3]->[Co+3]",
)  # fmt: skip
"""SMILES that together contain everything that the reader reads from RDKit's format."""


MolBytes = tuple[bytes, bytes, bytes]
"""The bytes of a molecule in three parts:

- eight bytes for each atom, :meth:`AtomFields.packed` without CIP labels, which take long to find (:mod:`molgcn.data.cip`)
- four bytes for each bond, the numbers of its two atoms as uint16
- four bytes for each bond, :meth:`BondFields.packed`
"""


@cache
def mol_bytes_reader() -> Callable[[Any], MolBytes]:
    """Return the fastest function that reads the bytes of a sanitised `rdkit.Chem.Mol` of at most 65,535 atoms, in its order."""
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
    """Read the atoms and bonds of an `rdkit.Chem.Mol` one by one with RDKit's functions."""
    atoms = [mol.GetAtomWithIdx(index) for index in range(mol.GetNumAtoms())]
    bonds = [mol.GetBondWithIdx(index) for index in range(mol.GetNumBonds())]
    return (
        b"".join(_ATOM.pack(read_atom(atom).packed()) for atom in atoms),
        b"".join(_ENDS.pack(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in bonds),
        b"".join(_BOND.pack(read_bond(bond).packed()) for bond in bonds),
    )


def read_atom(atom: Any) -> AtomFields:
    """Return the fields of an `rdkit.Chem.Atom` without its CIP label."""
    return AtomFields(
        number=atom.GetAtomicNum(),
        hidden_hs=atom.GetTotalNumHs(),
        num_hs=atom.GetTotalNumHs(True),
        explicit_hs=atom.GetNumExplicitHs(),
        charge=atom.GetFormalCharge(),
        degree=atom.GetDegree(),
        hybridization=int(atom.GetHybridization()),
        ring_size=atom.GetOwningMol().GetRingInfo().MinAtomRingSize(atom.GetIdx()) if atom.IsInRing() else 0,
        radicals=atom.GetNumRadicalElectrons(),
        aromatic=int(atom.GetIsAromatic()),
        chiral_tag=int(atom.GetChiralTag()),
    )


def read_bond(bond: Any) -> BondFields:
    """Return the fields of an `rdkit.Chem.Bond`."""
    return BondFields(
        type=int(bond.GetBondType()),
        conjugated=int(bond.GetIsConjugated()),
        ring_size=bond.GetOwningMol().GetRingInfo().MinBondRingSize(bond.GetIdx()) if bond.IsInRing() else 0,
        stereo=int(bond.GetStereo()),
    )
