"""An order of molecules from those that span a set to those in its midst (Kennard and Stone, Technometrics 11, 137, 1969)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from molgcn.data.fingerprints import check_pairs, morgan_fingerprints, tanimoto_distances
from molgcn.errors import UserError

_BYTES_A_PAIR = 9  # of the matrix, and of the copy and mask in which its largest distance is looked for


def kennard_stone_ranks(smiles: Sequence[str], num_workers: int | None = None) -> np.ndarray:
    """Return the place of each molecule in the order of Kennard and Stone, int64 [M], by astartes.

    The first two are the farthest apart by the Tanimoto distance of their Morgan fingerprints; each next one is the farthest from those
    before it.

    Args:
        smiles: M molecules.
        num_workers: worker processes for the fingerprints.

    Raises:
        UserError: when astartes is not installed, or for too many molecules for a matrix of all pairs.
    """
    try:
        from astartes.utils.fast_kennard_stone import fast_kennard_stone
    except ImportError:
        raise UserError(
            "dataset.split=kennard_stone needs the package astartes: pip install molgcn[splits]. dataset.split=kmeans and butina need none."
        ) from None
    count = len(smiles)
    if count < 2:
        return np.arange(count)
    check_pairs(count, _BYTES_A_PAIR, "kennard_stone")
    matrix = np.empty((count, count), np.float32)
    for rows, distances in tanimoto_distances(morgan_fingerprints(smiles, num_workers)):
        matrix[rows] = distances
    ranks = np.empty(count, np.int64)
    ranks[fast_kennard_stone(matrix)] = np.arange(count)
    return ranks
