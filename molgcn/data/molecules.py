"""Reads SMILES, mol blocks and RDKit molecules, with the hydrogens that a featuriser takes. Empty molecules are refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, partial
from typing import Any

Reader = Callable[[Any], Any]
_LONGEST = 1_000_000  # characters, for which RDKit takes 300 MB; no molecule may have that many atoms
_ATOM_MAP = re.compile(r":\d+\]")
_REFUSALS = (ValueError, RuntimeError)  # Chem.MolSanitizeException is a ValueError


class InvalidMoleculeError(Exception):
    """Raised for an input that is not a molecule. The text says why."""


def smiles_reader(hydrogens: str, stereo: bool = False) -> Reader:
    """Return a function that reads a SMILES and raises InvalidMoleculeError with RDKit's reason.

    Blanks around a SMILES are ignored. Stereochemistry is always perceived where a centre is marked, since RDKit drops hydrogens in
    brackets from marked atoms that are not stereocentres. Perceiving it takes a quarter of the time, and without a marked centre it changes
    double bonds only.

    Args:
        hydrogens: which hydrogens become atoms. "explicit" adds all of them after the heavy atoms. "implicit" leaves them out. "folded"
            leaves them out, since their numbers describe them fully, unless one of them stays an atom, as in [2H]OC; then it adds all.
            "written" keeps those that are written as atoms, for :func:`count_hydrogens`.
        stereo: whether the stereochemistry of double bonds is perceived too.
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
    """Return the sanitised molecule of a SMILES without atom maps, for everything but features.

    Raises:
        InvalidMoleculeError: when RDKit does not read the SMILES.
    """
    from rdkit import Chem

    mol = Chem.MolFromSmiles(without_atom_maps(smiles.strip()), _smiles_parameters(True, True))
    if mol is None or mol.GetNumAtoms() == 0:
        raise InvalidMoleculeError("RDKit does not read its SMILES")
    return mol


def without_atom_maps(smiles: str) -> str:
    """Return a SMILES without atom map numbers and the brackets that only they need.

    An atom map does not change the molecule, but its bracket states hydrogens, which `features=zinc` sees, and scaffolds keep it. A text
    without atom maps, or one that is not a SMILES, is returned as it is.
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
    """Return the reason for refusing a text that RDKit cannot parse, which names the notation that it seems to be."""
    for pattern, what in _OTHER_NOTATIONS:
        if pattern.match(text.replace("->", "").replace("<-", "")):  # arrows of dative bonds are not those of a reaction
            return f"it is not a SMILES (syntax) but looks like {what}"
    return "it is not a SMILES (syntax)"


def _why_refused(mol: Any, otherwise: str) -> str:
    """Return RDKit's reason for refusing a molecule that it could read unchecked, or `otherwise` if it could not (None)."""
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
    if explicit_before:  # as in [2H]OC: move the hydrogens behind the heavy atoms
        mol = Chem.RenumberAtoms(mol, sorted(range(mol.GetNumAtoms()), key=lambda i: _is_hydrogen(mol, i)))
    return mol


def _is_hydrogen(mol: Any, index: int) -> bool:
    return bool(mol.GetAtomWithIdx(index).GetAtomicNum() == 1)


def count_hydrogens(mol: Any) -> Any:
    """Return the molecule without its hydrogen atoms, which become hydrogen counts of the atoms to which they are bound.

    Only a hydrogen that is bound to exactly one atom, of another element, is removed. Unlike RDKit's default, this includes hydrogens that
    have an isotope, mark the geometry of a double bond, or are bound to a dummy atom or a nontetrahedral centre.

    Args:
        mol: a sanitised `rdkit.Chem.Mol`, which stays as it is.

    Returns:
        The `rdkit.Chem.Mol` without these hydrogens, or `mol` itself where it has no hydrogen atoms.
    """
    from rdkit import Chem

    if mol.GetNumAtoms() == mol.GetNumHeavyAtoms():
        return mol
    mol = Chem.RemoveHs(mol, _every_bound_hydrogen(), sanitize=False)
    mol.UpdatePropertyCache(strict=False)  # updates the numbers of hydrogens
    Chem.GetSymmSSSR(mol)  # finds the rings again, which the removal drops
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
    """Return a copy whose aromatic bonds are single or double. Atoms stay marked as aromatic.

    If there are several Kekulé forms, the choice depends on the order of atoms.

    Raises:
        InvalidMoleculeError: when a molecule that was not sanitised has no Kekulé form.
    """
    from rdkit import Chem

    mol = Chem.Mol(mol)
    try:
        Chem.Kekulize(mol)
    except _REFUSALS as error:
        raise InvalidMoleculeError(_refusal(error)) from error
    return mol


def read_mol_block(block: Any, hydrogens: str, stereo: bool = False) -> Any:
    """Return the molecule of an MDL mol block that writes out all hydrogens, as in QM9's SDF.

    Atoms and bonds are those of the block, and nothing is added. A molecule that RDKit's valence check refuses is kept, since QM9 has
    charges that its SDF does not show. Its rings, aromaticity and hybridisation are perceived without that check.

    Args:
        block: the text of the mol block.
        hydrogens: "explicit" and "written" keep the hydrogen atoms, "implicit" removes them.
        stereo: whether stereochemistry is perceived from 3D coordinates.

    Raises:
        InvalidMoleculeError: when the text is not a mol block or has no atoms.
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
    """Return the molecule of any SDF record, equal to that of its SMILES whether or not the block writes out its hydrogens.

    Raises:
        InvalidMoleculeError: with RDKit's reason.
    """
    from rdkit import Chem

    mol = Chem.MolFromMolBlock(block, removeHs=hydrogens != "written")
    if mol is None:
        raise InvalidMoleculeError(_why_refused(Chem.MolFromMolBlock(block, sanitize=False), "it is not a mol block that RDKit reads"))
    return _with_hydrogens(mol, hydrogens)


def read_mol(mol: Any, hydrogens: str) -> Any:
    """Return a sanitised copy of an `rdkit.Chem.Mol`.

    Args:
        mol: the molecule.
        hydrogens: "explicit" adds missing hydrogens behind the atoms, "implicit" removes them, "written" leaves them as they are.

    Raises:
        InvalidMoleculeError: when the object is not an `rdkit.Chem.Mol`, has no atoms, or RDKit refuses it.
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
"""Functions that make a reader for each kind of item. Their arguments are those of :func:`smiles_reader`."""
