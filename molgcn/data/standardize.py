"""Standardises molecules before their features are computed, by RDKit's MolStandardize (`dataset.standardize`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from molgcn.data.molecules import READERS, InvalidMoleculeError
from molgcn.data.plain_molecule import plain_molecule
from molgcn.data.reactions import read_reaction

LEVELS = ("none", "largest_fragment", "neutral", "tautomer")
"""Levels of standardisation, each of which includes the ones before it.

- "none" leaves molecules as they are.
- "largest_fragment" disconnects metals, normalises functional groups and keeps the largest fragment.
- "neutral" neutralises charges.
- "tautomer" takes RDKit's canonical tautomer.
"""


class Read(NamedTuple):
    """An item that was read."""

    mol: Any  # the `rdkit.Chem.Mol` or `molgcn.data.reactions.Reaction` from which the graph is made
    smiles: str  # SMILES of `mol`, or of the reaction
    own: str  # SMILES of the molecule before it was standardised. If the item is a SMILES, this is the item itself


def item_reader(kind: str, hydrogens: str, stereo: bool, standardize: str = "none") -> Callable[[Any], Read]:
    """Return a function that reads and standardises items of a kind, and raises InvalidMoleculeError with the reason.

    The kinds are those of :data:`molgcn.data.molecules.READERS`, and "reaction", which has no standard form. For `hydrogens` and `stereo`
    see :func:`molgcn.data.molecules.smiles_reader`.
    """
    if kind == "reaction":
        return lambda item: Read(read_reaction(item), item, item)
    read = READERS[kind](hydrogens, stereo or standardize != "none")
    read_standard = READERS["smiles"](hydrogens, stereo)

    def as_it_is(item: Any) -> Read:
        mol = read(item)
        if kind == "smiles":
            return Read(mol, item, item)
        smiles = _written(mol)
        return Read(plain_molecule(mol) if hydrogens == "counted" else mol, smiles, smiles)

    def standardized(item: Any) -> Read:
        mol, _, own = as_it_is(item)
        smiles = standard_smiles(mol, standardize)
        return Read(read_standard(smiles), smiles, own)

    return as_it_is if standardize == "none" else standardized


def standard_smiles(mol: Any, level: str) -> str:
    """Return the SMILES of a standardised molecule.

    The level is one of :data:`LEVELS` except "none". Where RDKit cannot standardise the molecule, InvalidMoleculeError has its reason.
    """
    from rdkit import Chem
    from rdkit.Chem.MolStandardize import rdMolStandardize

    try:
        mol = rdMolStandardize.FragmentParent(mol)
        if level != "largest_fragment":
            mol = _maker("Uncharger").uncharge(mol)
        if level == "tautomer":
            mol = _maker("TautomerEnumerator").Canonicalize(mol)
    except (ValueError, RuntimeError) as error:
        raise InvalidMoleculeError(f"it cannot be standardised: {str(error).strip().rstrip('.')}") from error
    return str(Chem.MolToSmiles(mol))


@cache
def _maker(name: str) -> Any:
    """Return an object of a class of RDKit's MolStandardize, which takes long to make."""
    from rdkit.Chem.MolStandardize import rdMolStandardize

    return getattr(rdMolStandardize, name)()


def _written(mol: Any) -> str:
    from rdkit import Chem

    return str(Chem.MolToSmiles(Chem.RemoveHs(mol, sanitize=False)))
