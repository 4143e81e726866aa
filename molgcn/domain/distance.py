"""How far molecules are from the training's: the numbers that stand beside their predictions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np

from molgcn.data.applicability import heavy_atoms
from molgcn.data.packed import PackedMolecules
from molgcn.data.segments import pointers
from molgcn.domain.fingerprints import morgan_fingerprints
from molgcn.domain.index import DomainIndex
from molgcn.domain.nearest import NearestNeighbour

NAMES = ("nearest similarity", "unseen atoms", "unseen bonds", "size outside")


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

    def distance(self, molecules: PackedMolecules, fingerprints: np.ndarray) -> np.ndarray:
        """Compare M molecules, with features of bonds, and their fingerprints [M, 256]; see :func:`distance_to_all`."""
        bonds, size, (low, high) = molecules.edge_attr, heavy_atoms(molecules), self.index.sizes
        assert bonds is not None
        return np.stack(
            [
                self._nearest.similarity(fingerprints),
                _unseen(molecules.x, molecules.table, molecules.node_ptr, self._atoms),
                _unseen(bonds, molecules.edge_table, molecules.edge_ptr, self._bonds),
                (size < low) | (size > high),
            ],
            axis=1,
        )


def distance_to_all(paths: Sequence[Path], molecules: PackedMolecules, smiles: Sequence[str], standardize: str = "none") -> np.ndarray:
    """Compare molecules with the training of one run or, of several, of the one that each molecule is farthest from.

    Args:
        paths: index files.
        molecules: M molecules, with features of bonds.
        smiles: their SMILES.
        standardize: see :func:`morgan_fingerprints`.

    Returns:
        float64 [M, 4], :data:`NAMES`: Tanimoto similarity to the training molecule that is most alike; the share of atoms whose features
        no training molecule has; the same of bonds; and 1 where the molecule has fewer or more heavy atoms than all of them, else 0.
    """
    fingerprints = morgan_fingerprints(smiles, standardize)
    each = np.stack([_open(path).distance(molecules, fingerprints) for path in paths])
    return np.concatenate([each[..., :1].min(axis=0), each[..., 1:].max(axis=0)], axis=1)


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
