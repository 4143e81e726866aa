"""The distance of molecules from the training molecules, as columns beside their predictions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from molgcn.data.applicability import heavy_atoms
from molgcn.data.packed import PackedMolecules
from molgcn.data.segments import pointers
from molgcn.domain.fingerprints import NearestNeighbour, morgan_fingerprints
from molgcn.domain.index import DomainIndex

NAMES = ("nearest similarity", "unseen atoms", "unseen bonds", "size outside")


def distance_to_all(paths: Sequence[Path], molecules: PackedMolecules, smiles: Sequence[str], standardize: str = "none") -> np.ndarray:
    """Compare M molecules, with features of bonds and SMILES, with the training molecules in the index files of one or several runs.

    For several runs, each of the four numbers is that of the run from which the molecule is farthest.

    Returns:
        float64 [M, 4], the columns :data:`NAMES`: the largest Tanimoto similarity to a training molecule; the share of atoms whose
        features no training molecule has; the share of bonds whose features no training molecule has; and 1 where the number of heavy
        atoms is outside the range of the training molecules, else 0.
    """
    fingerprints = morgan_fingerprints(smiles, standardize)
    each = np.stack([_distance(path, molecules, fingerprints) for path in paths])
    return np.concatenate([each[..., :1].min(axis=0), each[..., 1:].max(axis=0)], axis=1)


def _distance(path: Path, molecules: PackedMolecules, fingerprints: np.ndarray) -> np.ndarray:
    (low, high), nearest, atoms, bonds = _open(path)
    size = heavy_atoms(molecules)
    return np.stack(
        [
            nearest.similarity(fingerprints),
            _unseen(*molecules.computed_features, molecules.node_ptr, atoms),
            _unseen(*molecules.computed_edge_features, molecules.edge_ptr, bonds),
            (size < low) | (size > high),
        ],
        axis=1,
    )


@lru_cache(maxsize=32)
def _open(path: Path) -> tuple[np.ndarray, NearestNeighbour, set[bytes], set[bytes]]:
    """Return the sizes of an index, the search among its fingerprints, and its feature rows of atoms and of bonds."""
    index = DomainIndex.load(path)
    atoms, bonds = ({row.tobytes() for row in rows} for rows in (index.atoms, index.bonds))
    return index.sizes, NearestNeighbour(index.fingerprints), atoms, bonds


def _unseen(codes: np.ndarray, table: np.ndarray | None, ptr: np.ndarray, known: set[bytes]) -> np.ndarray:
    """Return the share of each molecule's feature rows that are not known, float64 [M]; 0 for a molecule without rows."""
    rows = codes if table is None else table
    new = np.array([row.tobytes() not in known for row in np.ascontiguousarray(rows, np.float32)], bool)
    total = pointers(new if table is None else new[codes])
    count = np.diff(ptr)
    return (total[ptr[1:]] - total[ptr[:-1]]) / np.maximum(count, 1)
