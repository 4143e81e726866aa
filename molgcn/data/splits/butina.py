"""Clusters of similar molecules (Butina, J. Chem. Inf. Comput. Sci. 39, 747, 1999)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from molgcn.data.fingerprints import check_pairs, morgan_fingerprints, tanimoto_distances


def butina_groups(smiles: Sequence[str], cutoff: float, num_workers: int | None = None) -> np.ndarray:
    """Return the number of each molecule's cluster, int64 [M], by RDKit's Butina clustering of Morgan fingerprints.

    Args:
        smiles: M molecules.
        cutoff: the Tanimoto distance from a cluster's centre up to which molecules belong to it.
        num_workers: worker processes for the fingerprints.

    Raises:
        UserError: when there are too many molecules for a matrix of all pairs, one byte each.
    """
    from rdkit.ML.Cluster.Butina import ClusterData

    count = len(smiles)
    check_pairs(count, 1, "butina")
    far = np.empty((count, count), bool)
    for rows, distances in tanimoto_distances(morgan_fingerprints(smiles, num_workers)):
        far[rows] = distances > cutoff
    groups = np.empty(count, np.int64)
    for number, members in enumerate(ClusterData(far, count, 0, isDistData=True)):  # of far = 0 or 1, at most 0 is near
        groups[list(members)] = number
    return groups
