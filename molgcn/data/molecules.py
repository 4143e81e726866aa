"""Reads SMILES, mol blocks and RDKit molecules, with the hydrogens that a featuriser takes. Empty molecules are refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from molgcn.data.plain_molecule import count_hydrogens, drop_brackets, without_isotopes, without_labels

Reader = Callable[[Any], Any]
READING = 4
"""Version of what molecules are read as, which goes up when graphs or descriptors change, so that cached sets are rebuilt."""
_LONGEST = 1_000_000  # characters, for which RDKit takes 300 MB; no molecule may have that many atoms
_NO_ATOMS = "the molecule has no atoms"
_REFUSALS = (ValueError, RuntimeError)  # Chem.MolSanitizeException is a ValueError


class InvalidMoleculeError(Exception):
    """Raised for an input that is not a molecule. The text says why."""


def smiles_reader(hydrogens: str, stereo: bool = False) -> Reader:
    """Return a function that reads a SMILES and raises InvalidMoleculeError with RDKit's reason.

    Blanks around a SMILES are ignored. Stereochemistry is always perceived where a centre is marked, since RDKit drops hydrogens in
    brackets from marked atoms that are not stereocentres. Perceiving it takes a quarter of the time, and without a marked centre it changes
    double bonds only.

    Atom maps are taken away, and so are isotopes unless hydrogens="implicit".

    Args:
        hydrogens: "counted" makes every hydrogen that is bound to an atom of another element a number of that atom, which describes it
            fully. "implicit" does so with those that RDKit leaves out, which are not those with an isotope.
        stereo: whether the stereochemistry of double bonds is perceived too.
    """
    from rdkit import Chem

    parse, sanitize = Chem.MolFromSmiles, Chem.SanitizeMol
    counted = hydrogens == "counted"
    unchecked = _smiles_parameters(False, False)

    def read(text: Any) -> Any:
        text = text.strip() if isinstance(text, str) else ""
        if not text:
            raise InvalidMoleculeError("the SMILES is empty")
        _check_length(text)
        text, labelled = without_labels(text, isotopes=counted), text
        marked = "@" in text or (stereo and ("/" in text or "\\" in text))
        mol = None if marked else parse(text, unchecked)
        if mol is None or mol.GetNumAtoms() != mol.GetNumHeavyAtoms():
            mol = _parsed(text, remove_hydrogens=not counted)
            mol = count_hydrogens(mol) if counted else mol
        else:
            try:
                sanitize(mol)
            except _REFUSALS as error:
                raise InvalidMoleculeError(_refusal(error)) from error
        if text != labelled:
            drop_brackets(mol)
        return mol

    return read


def _check_length(text: str) -> None:
    if len(text) > _LONGEST:
        raise InvalidMoleculeError(f"the SMILES has {len(text):,} characters, at most {_LONGEST:,} are read")


def read_mapped(smiles: str) -> Any:
    """Return the sanitised molecule of a SMILES with its atom maps and without isotopes. Hydrogens without an atom map are counted.

    Stereochemistry is perceived with the maps, which tell atoms apart, as in Chemprop.

    Raises:
        InvalidMoleculeError: with RDKit's reason.
    """
    _check_length(smiles)
    return count_hydrogens(_parsed(without_isotopes(smiles), remove_hydrogens=False), mapped=False)


def _parsed(text: str, remove_hydrogens: bool) -> Any:
    """Return the sanitised molecule of a SMILES, or raise InvalidMoleculeError with RDKit's reason."""
    from rdkit import Chem

    mol = Chem.MolFromSmiles(text, _smiles_parameters(True, remove_hydrogens))
    if mol is None:
        raise InvalidMoleculeError(_why_refused(Chem.MolFromSmiles(text, _smiles_parameters(False, False)), _why_no_smiles(text)))
    if mol.GetNumAtoms() == 0:
        raise InvalidMoleculeError(_NO_ATOMS)
    return mol


def whole_molecule(smiles: str, isotopes: bool = False) -> Any:
    """Return the sanitised molecule of a SMILES for everything but features: what the graph leaves out is left out.

    Descriptors, fingerprints, scaffolds and the forest take it. With `isotopes` these stay, and hydrogens with an isotope are atoms, as in
    version 1 of features=general.

    Raises:
        InvalidMoleculeError: when RDKit does not read the SMILES.
    """
    from rdkit import Chem

    text = without_labels(smiles.strip(), isotopes=not isotopes)
    mol = Chem.MolFromSmiles(text, _smiles_parameters(True, isotopes))
    if mol is None or mol.GetNumAtoms() == 0:
        raise InvalidMoleculeError("RDKit does not read its SMILES")
    if not isotopes:
        mol = count_hydrogens(mol)
    if "[" in text:
        drop_brackets(mol)
    return mol


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


def kekulized(mol: Any) -> Any:
    """Return a copy whose aromatic bonds are single or double. Atoms stay marked as aromatic.

    If there are several Kekulé forms, the choice depends on the order of atoms. Without one, for a molecule that was not sanitised,
    InvalidMoleculeError is raised.
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
    charges that its SDF does not show. Its rings, aromaticity and hybridisation are perceived without that check. With hydrogens="implicit"
    the hydrogen atoms that RDKit leaves out are removed. With `stereo` it is perceived from 3D coordinates.

    Raises:
        InvalidMoleculeError: when the text is not a mol block or has no atoms.
    """
    from rdkit import Chem

    mol = Chem.MolFromMolBlock(block, sanitize=False, removeHs=False) if isinstance(block, str) else None
    if mol is None:
        raise InvalidMoleculeError("it is not a mol block that RDKit reads")
    if mol.GetNumAtoms() == 0:
        raise InvalidMoleculeError(_NO_ATOMS)
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

    InvalidMoleculeError is raised with RDKit's reason.
    """
    from rdkit import Chem

    mol = Chem.MolFromMolBlock(block, removeHs=hydrogens == "implicit")
    if mol is None:
        raise InvalidMoleculeError(_why_refused(Chem.MolFromMolBlock(block, sanitize=False), "it is not a mol block that RDKit reads"))
    if mol.GetNumAtoms() == 0:
        raise InvalidMoleculeError(_NO_ATOMS)
    return mol


READERS: dict[str, Callable[[str, bool], Reader]] = {
    "smiles": smiles_reader,
    "molblock": lambda hydrogens, stereo: partial(read_mol_block, hydrogens=hydrogens, stereo=stereo),
    "sdf": lambda hydrogens, _: partial(read_structure, hydrogens=hydrogens),
}
"""Functions that make a reader for each kind of item. Their arguments are those of :func:`smiles_reader`.

Readers of structures leave isotopes, atom maps and, for "counted", hydrogen atoms to :func:`~molgcn.data.plain_molecule.plain_molecule`.
"""
