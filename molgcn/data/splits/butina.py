"""Butina clusters of molecules (Butina, J. Chem. Inf. Comput. Sci. 39, 747, 1999)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from molgcn.data.fingerprints import check_pairs, morgan_fingerprints, tanimoto_distances


def butina_groups(smiles: Sequence[str], cutoff: float, num_workers: int | None = None) -> np.ndarray:
    """Return the number of each molecule's cluster, int64 [M], by RDKit's Butina clustering of Morgan fingerprints.

    Args:
        smiles: M SMILES.
        cutoff: largest Tanimoto distance of a molecule from the centre of its cluster.
        num_workers: worker processes for the fingerprints.

    Raises:
        UserError: when a matrix of all pairs, of one byte each, does not fit into memory.
    """
    from rdkit.ML.Cluster.Butina import ClusterData

    count = len(smiles)
    check_pairs(count, 1, "butina")
    far = np.empty((count, count), bool)
    for rows, distances in tanimoto_distances(morgan_fingerprints(smiles, num_workers)):
        far[rows] = distances > cutoff
    groups = np.empty(count, np.int64)
    for number, members in enumerate(ClusterData(far, count, 0, isDistData=True)):  # threshold 0: near is not far
        groups[list(members)] = number
    return groups
