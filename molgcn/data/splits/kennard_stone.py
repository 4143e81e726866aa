"""The order of Kennard and Stone (Technometrics 11, 137, 1969), from the molecules at the edge of a set to those in its middle."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from molgcn.data.fingerprints import check_pairs, morgan_fingerprints, tanimoto_distances
from molgcn.errors import UserError

_BYTES_A_PAIR = 9  # the matrix, and the copy and mask in which astartes finds the largest distance


def kennard_stone_ranks(smiles: Sequence[str], num_workers: int | None = None) -> np.ndarray:
    """Return the rank of each molecule in the order of Kennard and Stone, int64 [M], by astartes.

    The first two molecules have the largest Tanimoto distance of their Morgan fingerprints. Each further molecule is the one farthest from
    all before it.

    Args:
        smiles: M SMILES.
        num_workers: worker processes for the fingerprints.

    Raises:
        UserError: when astartes is not installed, or a matrix of all pairs does not fit into memory.
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
