"""Bemis-Murcko scaffolds: the ring systems of molecules and the chains between them (J. Med. Chem. 39, 2887, 1996)."""

from __future__ import annotations

from collections.abc import Sequence

from molgcn.data.molecules import InvalidMoleculeError, whole_molecule
from molgcn.data.plain_molecule import without_labels
from molgcn.data.workers import map_chunks


def murcko_scaffolds(smiles: Sequence[str], num_workers: int | None = None) -> list[str]:
    """Return the SMILES of each molecule's Bemis-Murcko scaffold, "" for a molecule without rings."""
    return [one for chunk in map_chunks(_scaffolds, smiles, num_workers=num_workers, description="scaffolds") for one in chunk]


def _scaffolds(smiles: Sequence[str]) -> list[str]:
    from rdkit import rdBase

    with rdBase.BlockLogs():
        return [_scaffold(text) for text in smiles]


def _scaffold(smiles: str) -> str:
    from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles

    try:
        return str(MurckoScaffoldSmiles(mol=whole_molecule(smiles)))
    except InvalidMoleculeError:  # a molecule whose valences RDKit refuses, as an SDF may have, is its own scaffold
        return without_labels(smiles)
