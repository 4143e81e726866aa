"""Reads SMILES, mol blocks and RDKit molecules, with the hydrogens that a featuriser wants; never an empty molecule."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any


class InvalidMoleculeError(Exception):
    """An input that is not a molecule; the text says why."""


@cache
def _smiles_parameters(sanitize: bool) -> Any:
    from rdkit import Chem

    parameters: Any = Chem.SmilesParserParams()
    parameters.parseName = False  # else "CC O" is silently read as "CC" with the name "O"
    parameters.allowCXSMILES = False
    parameters.sanitize = sanitize
    parameters.removeHs = sanitize
    return parameters


def read_smiles(text: Any, hydrogens: str) -> Any:
    """The `rdkit.Chem.Mol` of a SMILES.

    Args:
        text: the SMILES; blanks around it are ignored.
        hydrogens: "explicit" adds them after the heavy atoms, "implicit" leaves them out, "folded" leaves them out where none is an atom
            (then their numbers say all about them) and adds them where one is, as in [2H]OC.

    Raises:
        InvalidMoleculeError: with RDKit's reason.
    """
    from rdkit import Chem

    if not isinstance(text, str) or not text.strip():
        raise InvalidMoleculeError("the SMILES is empty")
    mol = Chem.MolFromSmiles(text.strip(), _smiles_parameters(True))
    if mol is None:
        unchecked = Chem.MolFromSmiles(text.strip(), _smiles_parameters(False))
        raise InvalidMoleculeError(_why_refused(unchecked, "it is not a SMILES (syntax)"))
    return _with_hydrogens(mol, hydrogens)


def _why_refused(mol: Any, otherwise: str) -> str:
    """RDKit's reason for refusing a molecule that it could read unchecked; `otherwise` where it could not (None)."""
    from rdkit import Chem

    if mol is None:
        return otherwise
    try:
        Chem.SanitizeMol(mol)
    except (Chem.MolSanitizeException, ValueError, RuntimeError) as error:
        return f"RDKit refuses it: {str(error).strip().rstrip('.')}"
    return "RDKit refuses it"


def _with_hydrogens(mol: Any, hydrogens: str) -> Any:
    from rdkit import Chem

    if mol.GetNumAtoms() == 0:
        raise InvalidMoleculeError("the molecule has no atoms")
    explicit_before = mol.GetNumAtoms() != mol.GetNumHeavyAtoms()
    if hydrogens == "implicit" or (hydrogens == "folded" and not explicit_before):
        return mol
    mol = Chem.AddHs(mol)
    if explicit_before:  # as in [2H]OC: bring the hydrogens behind the heavy atoms
        mol = Chem.RenumberAtoms(mol, sorted(range(mol.GetNumAtoms()), key=lambda i: _is_hydrogen(mol, i)))
    return mol


def _is_hydrogen(mol: Any, index: int) -> bool:
    return bool(mol.GetAtomWithIdx(index).GetAtomicNum() == 1)


def read_mol_block(block: Any, hydrogens: str) -> Any:
    """The molecule of an MDL mol block whose hydrogens are all written out, as in QM9's SDF.

    Nothing is added: atoms and bonds are the block's. A molecule that RDKit's valence check refuses (QM9 has charges that
    its SDF does not show) is kept, and its rings, aromaticity and hybridisation are perceived without that check.

    Args:
        block: the text.
        hydrogens: "explicit" keeps the hydrogen atoms, "implicit" removes them.

    Raises:
        InvalidMoleculeError: when it is not a mol block or has no atoms.
    """
    from rdkit import Chem

    mol = Chem.MolFromMolBlock(block, sanitize=False, removeHs=False) if isinstance(block, str) else None
    if mol is None:
        raise InvalidMoleculeError("it is not a mol block that RDKit reads")
    if mol.GetNumAtoms() == 0:
        raise InvalidMoleculeError("the molecule has no atoms")
    for atom in mol.GetAtoms():
        atom.SetNoImplicit(True)
    strict = Chem.Mol(mol)
    if Chem.SanitizeMol(strict, catchErrors=True) == Chem.SanitizeFlags.SANITIZE_NONE:
        mol = strict
    else:
        mol.UpdatePropertyCache(strict=False)
        operations = Chem.SanitizeFlags.SANITIZE_ALL ^ Chem.SanitizeFlags.SANITIZE_PROPERTIES
        Chem.SanitizeMol(mol, operations, catchErrors=True)
    return mol if hydrogens == "explicit" else Chem.RemoveHs(mol, sanitize=False)


def read_structure(block: str, hydrogens: str) -> Any:
    """The molecule of any SDF record: what its SMILES would give, whether or not the block writes its hydrogens out.

    Raises:
        InvalidMoleculeError: with RDKit's reason.
    """
    from rdkit import Chem

    mol = Chem.MolFromMolBlock(block)
    if mol is None:
        raise InvalidMoleculeError(_why_refused(Chem.MolFromMolBlock(block, sanitize=False), "it is not a mol block that RDKit reads"))
    return _with_hydrogens(mol, hydrogens)


def read_mol(mol: Any, hydrogens: str) -> Any:
    """A copy of an `rdkit.Chem.Mol`, sanitised, with missing hydrogens added behind its atoms if they are wanted.

    Raises:
        InvalidMoleculeError: when it is not a molecule, is empty, or RDKit refuses it.
    """
    from rdkit import Chem

    if not isinstance(mol, Chem.Mol):
        raise InvalidMoleculeError(f"a {type(mol).__name__} is not an rdkit.Chem.Mol")
    mol = Chem.Mol(mol)
    try:
        Chem.SanitizeMol(mol)
    except (Chem.MolSanitizeException, ValueError, RuntimeError) as error:
        raise InvalidMoleculeError(f"RDKit refuses it: {str(error).strip().rstrip('.')}") from error
    if mol.GetNumAtoms() == 0:
        raise InvalidMoleculeError("the molecule has no atoms")
    return Chem.AddHs(mol) if hydrogens == "explicit" else Chem.RemoveHs(mol)


READERS: dict[str, Callable[[Any, str], Any]] = {"smiles": read_smiles, "molblock": read_mol_block, "sdf": read_structure, "mol": read_mol}
