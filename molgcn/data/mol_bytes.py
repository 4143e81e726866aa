"""An RDKit molecule as bytes: eight for each atom, and for each bond four, the numbers of its atoms, and four more of what it is.

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

from molgcn.data.featurizers.fields import AtomFields, BondFields

log = logging.getLogger(__name__)

_ATOM, _ENDS, _BOND = struct.Struct("=Q"), struct.Struct("=HH"), struct.Struct("=I")

CHECKED = (
    "C", "[NH4+].[O-]C=O", "c1ccc2[nH]ccc2c1", "C[C@H](F)N=C=O", r"F/C=C\Cl", "[13CH3][CH2]", "[O]", "N#CC1CC1", "CS(=O)(=O)O",
    "FP(F)(F)(F)F", "FS(F)(F)(F)(F)F", "[Fe+2]", "[SiH3][Si]", "C[N+](=O)[O-]", "[2H]OC", "[H][H]", "[NH3]->[Cu]", "C1CC2CCC1C2", "C" * 300,
    "C/C=C/[C@@H](O)C=CC=O", "[Pt@SP1](F)(Cl)(Br)I", "C1CC1C1CCCCCCCCCCCCCCCCC1", "[Re]$[Re]", "C1CCCCC1" * 45, "[O][O]", "[NH3]->[Co+3]",
)  # fmt: skip
"""SMILES with everything that the reader takes from RDKit's stored form."""


MolBytes = tuple[bytes, bytes, bytes]
"""A molecule: eight bytes an atom, :meth:`AtomFields.packed` without CIP labels, which take long (:mod:`molgcn.data.cip`); four bytes a
bond, the uint16 numbers of its atoms; and four more a bond, :meth:`BondFields.packed`."""


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
    atoms = [mol.GetAtomWithIdx(index) for index in range(mol.GetNumAtoms())]
    bonds = [mol.GetBondWithIdx(index) for index in range(mol.GetNumBonds())]
    return (
        b"".join(_ATOM.pack(read_atom(atom).packed()) for atom in atoms),
        b"".join(_ENDS.pack(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in bonds),
        b"".join(_BOND.pack(read_bond(bond).packed()) for bond in bonds),
    )


def read_atom(atom: Any) -> AtomFields:
    """The fields of an `rdkit.Chem.Atom` but for the CIP label."""
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
    """The fields of an `rdkit.Chem.Bond`."""
    return BondFields(
        type=int(bond.GetBondType()),
        conjugated=int(bond.GetIsConjugated()),
        ring_size=bond.GetOwningMol().GetRingInfo().MinBondRingSize(bond.GetIdx()) if bond.IsInRing() else 0,
        stereo=int(bond.GetStereo()),
    )
