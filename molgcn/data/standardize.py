"""Standardises molecules before their features are computed, by RDKit's MolStandardize (`dataset.standardize`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from molgcn.data.molecules import READERS, InvalidMoleculeError

LEVELS = ("none", "largest_fragment", "neutral", "tautomer")
"""Levels of standardisation, each of which includes the ones before it.

- "none" leaves molecules as they are.
- "largest_fragment" disconnects metals, normalises functional groups and keeps the largest fragment.
- "neutral" neutralises charges.
- "tautomer" takes RDKit's canonical tautomer.
"""


class Read(NamedTuple):
    """An item that was read.

    Attributes:
        mol: the `rdkit.Chem.Mol` from which the graph is made.
        smiles: SMILES of `mol`.
        own: SMILES of the molecule before it was standardised. If the item is a SMILES, this is the item itself.
    """

    mol: Any
    smiles: str
    own: str


def item_reader(kind: str, hydrogens: str, stereo: bool, standardize: str = "none") -> Callable[[Any], Read]:
    """Return a function that reads and standardises items of a kind, and raises InvalidMoleculeError with the reason.

    Args:
        kind: kind of the items, a key of :data:`molgcn.data.molecules.READERS`.
        hydrogens: which hydrogens become atoms, see :func:`molgcn.data.molecules.smiles_reader`.
        stereo: whether the stereochemistry of double bonds is perceived too.
        standardize: one of :data:`LEVELS`.
    """
    if standardize == "none":
        read = READERS[kind](hydrogens, stereo)

        def as_it_is(item: Any) -> Read:
            mol = read(item)
            smiles = item if kind == "smiles" else _written(mol)
            return Read(mol, smiles, smiles)

        return as_it_is
    read_own, read_standard = READERS[kind]("implicit", True), READERS["smiles"](hydrogens, stereo)

    def standardized(item: Any) -> Read:
        mol = read_own(item)
        smiles = standard_smiles(mol, standardize)
        return Read(read_standard(smiles), smiles, item if kind == "smiles" else _written(mol))

    return standardized


def standard_smiles(mol: Any, level: str) -> str:
    """Return the SMILES of a standardised molecule.

    Args:
        mol: an `rdkit.Chem.Mol`.
        level: one of :data:`LEVELS` except "none".

    Raises:
        InvalidMoleculeError: when RDKit cannot standardise the molecule, with its reason.
    """
    from rdkit import Chem
    from rdkit.Chem.MolStandardize import rdMolStandardize

    try:
        mol = rdMolStandardize.FragmentParent(mol)
        if level != "largest_fragment":
            mol = _uncharger().uncharge(mol)
        if level == "tautomer":
            mol = _tautomers().Canonicalize(mol)
    except (ValueError, RuntimeError) as error:
        raise InvalidMoleculeError(f"it cannot be standardised: {str(error).strip().rstrip('.')}") from error
    return str(Chem.MolToSmiles(mol))


@cache
def _uncharger() -> Any:
    from rdkit.Chem.MolStandardize import rdMolStandardize

    return rdMolStandardize.Uncharger()


@cache
def _tautomers() -> Any:
    from rdkit.Chem.MolStandardize import rdMolStandardize

    return rdMolStandardize.TautomerEnumerator()


def _written(mol: Any) -> str:
    from rdkit import Chem

    return str(Chem.MolToSmiles(Chem.RemoveHs(mol, sanitize=False)))
