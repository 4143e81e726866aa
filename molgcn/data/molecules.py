"""Reads SMILES, mol blocks and RDKit molecules, with the hydrogens that a featuriser wants; never an empty molecule."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, partial
from typing import Any

Reader = Callable[[Any], Any]
_LONGEST = 1_000_000  # of which RDKit makes 300 MB; a million atoms are more than any molecule here may have
_ATOM_MAP = re.compile(r":\d+\]")
_REFUSALS = (ValueError, RuntimeError)  # Chem.MolSanitizeException is a ValueError


class InvalidMoleculeError(Exception):
    """An input that is not a molecule; the text says why."""


def smiles_reader(hydrogens: str, stereo: bool = False) -> Reader:
    """Reads SMILES; blanks around them are ignored.

    Stereochemistry is perceived where a centre is marked, since RDKit then lets go of hydrogens in brackets that it finds to be none.
    Otherwise it changes double bonds alone, and takes a quarter of the time.

    Args:
        hydrogens: "explicit" adds them after the heavy atoms, "implicit" leaves them out, "folded" leaves them out where none is an atom
            (then their numbers say all about them) and adds them where one is, as in [2H]OC, "written" leaves those that are written as
            atoms, for :func:`count_hydrogens`.
        stereo: whether double bonds' stereochemistry is wanted too.

    Returns:
        A function of the text. It raises InvalidMoleculeError with RDKit's reason.
    """
    from rdkit import Chem

    parse, sanitize = Chem.MolFromSmiles, Chem.SanitizeMol
    full, unchecked = _smiles_parameters(True, hydrogens != "written"), _smiles_parameters(False, False)

    def read(text: Any) -> Any:
        text = text.strip() if isinstance(text, str) else ""
        if not text:
            raise InvalidMoleculeError("the SMILES is empty")
        if len(text) > _LONGEST:
            raise InvalidMoleculeError(f"the SMILES has {len(text):,} characters, at most {_LONGEST:,} are read")
        text = without_atom_maps(text)
        marked = "@" in text or (stereo and ("/" in text or "\\" in text))
        mol = None if marked else parse(text, unchecked)
        if mol is None or mol.GetNumAtoms() != mol.GetNumHeavyAtoms():
            mol = parse(text, full)
            if mol is None:
                raise InvalidMoleculeError(_why_refused(parse(text, unchecked), _why_no_smiles(text)))
            return _with_hydrogens(mol, hydrogens)
        try:
            sanitize(mol)
        except _REFUSALS as error:
            raise InvalidMoleculeError(_refusal(error)) from error
        return _with_hydrogens(mol, hydrogens) if hydrogens == "explicit" else mol

    return read


def whole_molecule(smiles: str) -> Any:
    """Return the molecule of a SMILES as RDKit reads it, with all that it perceives; for what is computed beside features.

    Raises:
        InvalidMoleculeError: where it is none.
    """
    from rdkit import Chem

    mol = Chem.MolFromSmiles(without_atom_maps(smiles.strip()), _smiles_parameters(True, True))
    if mol is None or mol.GetNumAtoms() == 0:
        raise InvalidMoleculeError("RDKit does not read its SMILES")
    return mol


def without_atom_maps(smiles: str) -> str:
    """Return a SMILES without the numbers of atom maps and the brackets that only these need; one that has none, or is no SMILES, as it is.

    A map says nothing of what an atom is, but its bracket states hydrogens, which `features=zinc` sees, and scaffolds keep it.
    """
    from rdkit import Chem, rdBase

    if not _ATOM_MAP.search(smiles):
        return smiles
    with rdBase.BlockLogs():
        mol = Chem.MolFromSmiles(smiles, _smiles_parameters(True, True))
    if mol is None:
        return smiles
    for atom in mol.GetAtoms():
        atom.SetAtomMapNum(0)
    return str(Chem.MolToSmiles(mol, canonical=False))  # atoms keep their order


@cache
def _smiles_parameters(sanitize: bool, remove_hydrogens: bool) -> Any:
    from rdkit import Chem

    parameters: Any = Chem.SmilesParserParams()
    parameters.parseName = False  # else "CC O" is silently read as "CC" with the name "O"
    parameters.allowCXSMILES = False
    parameters.sanitize = sanitize
    parameters.removeHs = remove_hydrogens
    return parameters


_OTHER_NOTATIONS = (
    (re.compile(r"InChI="), "an InChI: convert it with RDKit's Chem.MolToSmiles(Chem.MolFromInchi(text))"),
    (re.compile(r"[A-Z]{14}-[A-Z]{10}-[A-Z]$"), "an InChIKey, a hash of a structure: look its SMILES up where it comes from"),
    (re.compile(r"[^<>]*>[^<>]*>[^<>]*$"), "a reaction (reactants>agents>products): give one of its molecules"),
    (re.compile(r"\S+\s+\|.*\|"), "a CXSMILES: leave out what stands behind the blank, its extensions '|...|'"),
    (re.compile(r".*[\r\n]+M {2}END", re.DOTALL), "a mol block: write it into an SDF, or convert it with RDKit's Chem.MolToSmiles"),
)


def _why_no_smiles(text: str) -> str:
    """What a text that RDKit cannot parse seems to be instead of a SMILES."""
    for pattern, what in _OTHER_NOTATIONS:
        if pattern.match(text.replace("->", "").replace("<-", "")):  # dative bonds are no arrows of a reaction
            return f"it is not a SMILES (syntax) but looks like {what}"
    return "it is not a SMILES (syntax)"


def _why_refused(mol: Any, otherwise: str) -> str:
    """RDKit's reason for refusing a molecule that it could read unchecked; `otherwise` where it could not (None)."""
    from rdkit import Chem

    if mol is None:
        return otherwise
    try:
        Chem.SanitizeMol(mol)
    except _REFUSALS as error:
        return _refusal(error)
    return "RDKit refuses it"


def _refusal(error: Exception) -> str:
    return f"RDKit refuses it: {str(error).strip().rstrip('.')}"


def _with_hydrogens(mol: Any, hydrogens: str) -> Any:
    from rdkit import Chem

    if mol.GetNumAtoms() == 0:
        raise InvalidMoleculeError("the molecule has no atoms")
    explicit_before = mol.GetNumAtoms() != mol.GetNumHeavyAtoms()
    if hydrogens in ("implicit", "written") or (hydrogens == "folded" and not explicit_before):
        return mol
    mol = Chem.AddHs(mol)
    if explicit_before:  # as in [2H]OC: bring the hydrogens behind the heavy atoms
        mol = Chem.RenumberAtoms(mol, sorted(range(mol.GetNumAtoms()), key=lambda i: _is_hydrogen(mol, i)))
    return mol


def _is_hydrogen(mol: Any, index: int) -> bool:
    return bool(mol.GetAtomWithIdx(index).GetAtomicNum() == 1)


def count_hydrogens(mol: Any) -> Any:
    """Return the molecule without hydrogen atoms that are bound to one atom of another element, where their number says all about them.

    RDKit's own removal leaves those that have an isotope, mark a double bond's geometry or are bound to a dummy.
    """
    from rdkit import Chem

    if mol.GetNumAtoms() == mol.GetNumHeavyAtoms():
        return mol
    mol = Chem.RemoveHs(mol, _every_bound_hydrogen(), sanitize=False)
    mol.UpdatePropertyCache(strict=False)  # the numbers of hydrogens
    Chem.GetSymmSSSR(mol)  # rings, which the removal lets go of
    return mol


@cache
def _every_bound_hydrogen() -> Any:
    from rdkit import Chem

    parameters: Any = Chem.RemoveHsParameters()
    for name in ("Isotopes", "DefiningBondStereo", "DummyNeighbors", "NontetrahedralNeighbors"):
        setattr(parameters, f"remove{name}", True)
    parameters.showWarnings = False
    return parameters


def kekulized(mol: Any) -> Any:
    """Return a copy whose aromatic bonds are single or double; atoms, and that they are aromatic, stay.

    Which of several Kekulé forms it is depends on the order of atoms.

    Raises:
        InvalidMoleculeError: where there is none, in a molecule that was not sanitised.
    """
    from rdkit import Chem

    mol = Chem.Mol(mol)
    try:
        Chem.Kekulize(mol)
    except _REFUSALS as error:
        raise InvalidMoleculeError(_refusal(error)) from error
    return mol


def read_mol_block(block: Any, hydrogens: str, stereo: bool = False) -> Any:
    """The molecule of an MDL mol block whose hydrogens are all written out, as in QM9's SDF.

    Nothing is added: atoms and bonds are the block's. A molecule that RDKit's valence check refuses (QM9 has charges that
    its SDF does not show) is kept, and its rings, aromaticity and hybridisation are perceived without that check.

    Args:
        block: the text.
        hydrogens: "explicit" and "written" keep the hydrogen atoms, "implicit" removes them.
        stereo: whether stereochemistry is perceived, from coordinates in space.

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
    if stereo and mol.GetConformer().Is3D():
        Chem.AssignStereochemistryFrom3D(mol)
    return Chem.RemoveHs(mol, sanitize=False) if hydrogens == "implicit" else mol


def read_structure(block: str, hydrogens: str) -> Any:
    """The molecule of any SDF record: what its SMILES would give, whether or not the block writes its hydrogens out.

    Raises:
        InvalidMoleculeError: with RDKit's reason.
    """
    from rdkit import Chem

    mol = Chem.MolFromMolBlock(block, removeHs=hydrogens != "written")
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
    except _REFUSALS as error:
        raise InvalidMoleculeError(_refusal(error)) from error
    if mol.GetNumAtoms() == 0:
        raise InvalidMoleculeError("the molecule has no atoms")
    if hydrogens == "written":
        return mol
    return Chem.AddHs(mol) if hydrogens == "explicit" else Chem.RemoveHs(mol)


READERS: dict[str, Callable[[str, bool], Reader]] = {
    "smiles": smiles_reader,
    "molblock": lambda hydrogens, stereo: partial(read_mol_block, hydrogens=hydrogens, stereo=stereo),
    "sdf": lambda hydrogens, _: partial(read_structure, hydrogens=hydrogens),
    "mol": lambda hydrogens, _: partial(read_mol, hydrogens=hydrogens),
}
"""By the kind of the items, and given the hydrogens wanted and whether stereochemistry is."""
