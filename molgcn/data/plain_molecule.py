"""Takes from molecules what no current featuriser sees: isotopes, atom maps, and the writing of hydrogens as atoms."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

_ATOM_MAP = re.compile(r":\d+(?=\])")
_ISOTOPE = re.compile(r"(?<=\[)\d+")
_LABEL = re.compile(f"{_ISOTOPE.pattern}|{_ATOM_MAP.pattern}")
_NEEDS_NO_BRACKET = {5, 6, 7, 8, 9, 15, 16, 17, 35, 53}  # SMILES' organic subset


def without_labels(smiles: str, isotopes: bool = True) -> str:
    """Return a SMILES without atom map numbers and, if wanted, isotopes, with the same atoms in the same order."""
    return (_LABEL if isotopes else _ATOM_MAP).sub("", smiles)


def without_isotopes(smiles: str) -> str:
    return _ISOTOPE.sub("", smiles)


def plain_molecule(mol: Any) -> Any:
    """Return a molecule without isotopes, atom maps, and hydrogen atoms that are bound to one atom of another element.

    Stereochemistry that only isotopes give is taken away too. The other atoms keep their order. The molecule given must be sanitised, and
    stays as it is.
    """
    from rdkit import Chem

    if not any(atom.GetIsotope() or atom.GetAtomMapNum() for atom in mol.GetAtoms()):
        return count_hydrogens(mol)
    mol = Chem.Mol(mol)
    for atom in mol.GetAtoms():
        atom.SetIsotope(0)
        atom.SetAtomMapNum(0)
    mol = count_hydrogens(mol)
    _perceive_stereo(mol)
    drop_brackets(mol)
    return mol


def count_hydrogens(mol: Any, mapped: bool = True) -> Any:
    """Return the molecule without its hydrogen atoms, which become hydrogen counts of the atoms to which they are bound.

    Only a hydrogen that is bound to exactly one atom, of another element, is removed. Unlike RDKit's default, this includes hydrogens that
    have an isotope, mark the geometry of a double bond, or are bound to a dummy atom or a nontetrahedral centre. Without `mapped`, those
    with an atom map stay. The molecule given must be sanitised, and stays as it is. It is returned itself where it has no hydrogen atoms.
    """
    from rdkit import Chem

    if mol.GetNumAtoms() == mol.GetNumHeavyAtoms():
        return mol
    mol = Chem.RemoveHs(mol, _every_bound_hydrogen(mapped), sanitize=False)
    mol.UpdatePropertyCache(strict=False)  # updates the numbers of hydrogens
    Chem.GetSymmSSSR(mol)  # finds the rings again, which the removal drops
    _perceive_stereo(mol)  # RDKit takes CH3 with hydrogen atoms for another group than CH3 without
    return mol


@cache
def _every_bound_hydrogen(mapped: bool) -> Any:
    from rdkit import Chem

    parameters: Any = Chem.RemoveHsParameters()
    for name in ("Isotopes", "DefiningBondStereo", "DummyNeighbors", "NontetrahedralNeighbors"):
        setattr(parameters, f"remove{name}", True)
    parameters.removeMapped = mapped
    parameters.showWarnings = False
    return parameters


def _perceive_stereo(mol: Any) -> None:
    """Find the stereocentres of a molecule again, as RDKit's SMILES parser does, and let the marks of other atoms go."""
    from rdkit import Chem

    Chem.AssignStereochemistry(mol, cleanIt=True, force=True, flagPossibleStereoCenters=True)


def drop_brackets(mol: Any) -> None:
    """Let RDKit count the hydrogens of atoms whose bracket states nothing more, as if the SMILES had no such brackets.

    A bracket that only held an atom map or an isotope would state hydrogens, which `features=zinc` sees. The molecule given must be
    sanitised, and is changed.
    """
    from rdkit.Chem import GetPeriodicTable

    valence = GetPeriodicTable().GetDefaultValence
    for atom in mol.GetAtoms():
        if not atom.GetNoImplicit() or atom.GetAtomicNum() not in _NEEDS_NO_BRACKET:
            continue
        if atom.GetFormalCharge() or atom.GetNumRadicalElectrons() or int(atom.GetChiralTag()):
            continue
        stated = atom.GetNumExplicitHs()
        if stated and atom.GetTotalValence() != valence(atom.GetAtomicNum()):
            continue  # as in [PH](C)(C)(C)C, for which RDKit writes a bracket
        for implicit, count in ((True, 0), (False, stated)):
            atom.SetNoImplicit(not implicit)
            atom.SetNumExplicitHs(count)
            atom.UpdatePropertyCache(strict=False)
            if atom.GetTotalNumHs() == stated:
                break
