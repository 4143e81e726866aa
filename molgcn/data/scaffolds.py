"""Bemis-Murcko scaffolds: the ring systems of molecules and the chains between them (J. Med. Chem. 39, 2887, 1996)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from molgcn.data.molecules import without_atom_maps
from molgcn.data.workers import map_chunks


def murcko_scaffolds(smiles: Sequence[str], num_workers: int | None = None) -> list[str]:
    """Return the SMILES of each molecule's Bemis-Murcko scaffold, "" for a molecule without rings."""
    return [one for chunk in map_chunks(_scaffolds, smiles, num_workers=num_workers, description="scaffolds") for one in chunk]


def _scaffolds(smiles: Sequence[str]) -> list[str]:
    from rdkit import rdBase
    from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles

    with rdBase.BlockLogs():
        return [_scaffold(text, MurckoScaffoldSmiles) for text in smiles]


def _scaffold(smiles: str, murcko: Callable[[str], str]) -> str:
    try:
        return murcko(without_atom_maps(smiles))
    except ValueError:  # a molecule whose valences RDKit refuses, as an SDF may have, is its own scaffold
        return smiles
