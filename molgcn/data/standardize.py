"""Brings molecules to a standard form before their features are computed: `dataset.standardize`, by RDKit's MolStandardize."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from molgcn.data.molecules import READERS, InvalidMoleculeError

LEVELS = ("none", "largest_fragment", "neutral", "tautomer")
"""Each does what the ones before it do: metals cut off and functional groups written alike, the largest fragment; neutral; a tautomer."""


class Read(NamedTuple):
    """An item that was read.

    Attributes:
        mol: the `rdkit.Chem.Mol` that the graph is made of.
        smiles: of that molecule.
        own: the SMILES before it was standardised; of an item that is a SMILES the item itself.
    """

    mol: Any
    smiles: str
    own: str


def item_reader(kind: str, hydrogens: str, stereo: bool, standardize: str = "none") -> Callable[[Any], Read]:
    """Return a function that reads items of a kind; it raises InvalidMoleculeError with the reason.

    Args:
        kind: of :data:`molgcn.data.molecules.READERS`.
        hydrogens: those that the molecules are to have, see :func:`molgcn.data.molecules.smiles_reader`.
        stereo: whether double bonds' stereochemistry is wanted too.
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
    """Return the SMILES of a molecule's standard form.

    Args:
        mol: an `rdkit.Chem.Mol`.
        level: one of :data:`LEVELS` but "none".

    Raises:
        InvalidMoleculeError: with RDKit's reason.
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
