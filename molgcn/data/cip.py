"""CIP labels: R and S of atoms, E and Z of double bonds. Unlike RDKit's tags they do not depend on the order of atoms."""

from __future__ import annotations

from typing import Any

from molgcn.data.featurizers.fields import ATOM_STEREO, BOND_STEREO, BOND_STEREOS, CIP_LABELS
from molgcn.data.molecules import InvalidMoleculeError

_MOST_STEPS = 1_250_000  # about a second; proteins need some hundred
_LABEL = "_CIPCode"  # the property in which RDKit stores a label


def with_labels(mol: Any, atoms: bytes, bonds: bytes) -> tuple[bytes, bytes]:
    """Return a molecule's atoms with CIP labels in place of chiral tags, and its bonds with STEREOE, STEREOZ or STEREONONE.

    Args:
        mol: the `rdkit.Chem.Mol`. Its CIP labels are set.
        atoms: its atoms as bytes, see :data:`molgcn.data.mol_bytes.MolBytes`.
        bonds: its bonds as bytes, see :data:`molgcn.data.mol_bytes.MolBytes`.

    Raises:
        InvalidMoleculeError: when RDKit needs too many steps to find the labels.
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
