"""Reads the atoms and bonds of an RDKit molecule as bytes, and their CIP labels.

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

from molgcn.data.featurizers.fields import ATOM_STEREO, BOND_STEREO, BOND_STEREOS, CIP_LABELS, AtomFields, BondFields
from molgcn.data.molecules import InvalidMoleculeError

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

- eight bytes for each atom, :meth:`AtomFields.packed` without CIP labels, which take long to find (:func:`with_labels`)
- four bytes for each bond, the numbers of its two atoms as uint16
- four bytes for each bond, :meth:`BondFields.packed`
"""
_MOST_STEPS = 1_250_000  # about a second; proteins need some hundred
_LABEL = "_CIPCode"  # the property in which RDKit stores a label


@cache
def mol_bytes_reader() -> Callable[[Any], MolBytes]:
    """Return the fastest function that reads the bytes of a sanitised `rdkit.Chem.Mol` of at most 65,535 atoms, in its order."""
    try:
        from molgcn._cpu import read_rdkit_binary
    except ImportError:
        return plain_mol_bytes
    return reader_by(read_rdkit_binary)


def reader_by(read_binary: Callable[[bytes], MolBytes | None]) -> Callable[[Any], MolBytes]:
    """Return a function that reads the bytes of molecules by what reads RDKit's binary form, or :func:`plain_mol_bytes` if that errs.

    Args:
        read_binary: Returns the bytes of a molecule from its binary form, or None for one that it does not know.
    """
    from rdkit import Chem, __version__

    without = int(Chem.PropertyPickleOptions.NoConformers)
    for mol in map(Chem.MolFromSmiles, CHECKED):
        if read_binary(mol.ToBinary(without)) != plain_mol_bytes(mol):
            log.warning("RDKit %s stores molecules in a form that is not known here; asking for atoms one by one is slower", __version__)
            return plain_mol_bytes

    def read(mol: Any) -> MolBytes:
        return read_binary(mol.ToBinary(without)) or plain_mol_bytes(mol)

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


def with_labels(mol: Any, atoms: bytes, bonds: bytes) -> tuple[bytes, bytes]:
    """Return a molecule's atoms with CIP labels in place of chiral tags, and its bonds with STEREOE, STEREOZ or STEREONONE.

    The CIP labels of `mol` are set. InvalidMoleculeError is raised where RDKit needs too many steps to find them.
    """
    from rdkit.Chem.rdCIPLabeler import AssignCIPLabels

    chiral_tags, stereos = atoms[ATOM_STEREO::8], bonds[BOND_STEREO::4]
    if not any(chiral_tags) and not any(stereos):
        return atoms, bonds
    labelled_atoms, labelled_bonds = bytearray(atoms), bytearray(bonds)
    try:
        AssignCIPLabels(mol, maxRecursiveIterations=_MOST_STEPS)
    except RuntimeError as error:
        raise InvalidMoleculeError("its CIP labels take too long to find; leave stereochemistry out with dataset.stereo=false") from error
    for index, tag in enumerate(chiral_tags):
        if tag:
            label = _label(mol.GetAtomWithIdx(index))
            labelled_atoms[8 * index + ATOM_STEREO] = CIP_LABELS.index(label) << 4 if label in CIP_LABELS else 0
    for index, tag in enumerate(stereos):
        if tag:
            geometry = {"E": "STEREOE", "Z": "STEREOZ"}.get(_label(mol.GetBondWithIdx(index)), "STEREONONE")
            labelled_bonds[4 * index + BOND_STEREO] = BOND_STEREOS.index(geometry)
    return bytes(labelled_atoms), bytes(labelled_bonds)


def _label(item: Any) -> str:
    return str(item.GetProp(_LABEL)) if item.HasProp(_LABEL) else ""
