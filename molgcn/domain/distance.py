"""How far molecules are from the training's: the numbers that stand beside their predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np

from molgcn.data.applicability import heavy_atoms
from molgcn.data.packed import PackedMolecules
from molgcn.data.segments import pointers
from molgcn.domain.fingerprints import morgan_fingerprints
from molgcn.domain.index import DomainIndex
from molgcn.domain.nearest import NearestNeighbour


@dataclass(frozen=True)
class Distance:
    """Numbers of M molecules.

    Attributes:
        similarity: float64 [M], Tanimoto similarity to the training molecule that is most alike, from 0 to 1.
        unseen_atoms: float64 [M], the share of atoms whose features no training molecule has.
        unseen_bonds: float64 [M], the same of bonds.
        size_outside: float64 [M], 1 where the molecule has fewer or more heavy atoms than every training molecule, else 0.
    """

    similarity: np.ndarray
    unseen_atoms: np.ndarray
    unseen_bonds: np.ndarray
    size_outside: np.ndarray

    @classmethod
    def names(cls) -> list[str]:
        """Return the headers of their columns."""
        return ["nearest similarity", "unseen atoms", "unseen bonds", "size outside"]

    @property
    def columns(self) -> np.ndarray:
        """All numbers, float64 [M, 4]."""
        return np.stack([getattr(self, field.name) for field in fields(self)], axis=1)


class Domain:
    """The training molecules of one run, ready to compare with.

    Args:
        index: what is kept of them.
    """

    def __init__(self, index: DomainIndex) -> None:
        self.index = index
        self._atoms, self._bonds = ({row.tobytes() for row in rows} for rows in (index.atoms, index.bonds))

    @cached_property
    def _nearest(self) -> NearestNeighbour:
        return NearestNeighbour(self.index.fingerprints)

    def distance(self, molecules: PackedMolecules, fingerprints: np.ndarray) -> Distance:
        """Compare M molecules, with features of bonds, and their fingerprints [M, 256]."""
        size, (low, high) = heavy_atoms(molecules), self.index.sizes
        bonds, bond_table = molecules.edge_attr, molecules.edge_table
        assert bonds is not None
        return Distance(
            self._nearest.similarity(fingerprints),
            _unseen(molecules.x, molecules.table, molecules.node_ptr, self._atoms),
            _unseen(bonds, bond_table, molecules.edge_ptr, self._bonds),
            ((size < low) | (size > high)).astype(np.float64),
        )


def distance_to_all(paths: Sequence[Path], molecules: PackedMolecules, smiles: Sequence[str]) -> Distance:
    """Compare molecules with the training of one run or, of an ensemble, of the member that is farthest from each.

    Args:
        paths: index files.
        molecules: M molecules, with features of bonds.
        smiles: their SMILES.
    """
    fingerprints = morgan_fingerprints(smiles)
    each = [_open(path).distance(molecules, fingerprints) for path in paths]
    least = np.min([one.similarity for one in each], axis=0)
    most = (np.max([getattr(one, name) for one in each], axis=0) for name in ("unseen_atoms", "unseen_bonds", "size_outside"))
    return Distance(least, *most)


@lru_cache(maxsize=32)
def _open(path: Path) -> Domain:
    """Open an index once a process."""
    return Domain(DomainIndex.load(path))


def _unseen(codes: np.ndarray, table: np.ndarray | None, ptr: np.ndarray, known: set[bytes]) -> np.ndarray:
    """Return each molecule's share of rows that are not known, 0 where it has none."""
    rows = codes if table is None else table
    new = np.array([row.tobytes() not in known for row in np.ascontiguousarray(rows, np.float32)], bool)
    total = pointers(new if table is None else new[codes])
    count = np.diff(ptr)
    return (total[ptr[1:]] - total[ptr[:-1]]) / np.maximum(count, 1)
