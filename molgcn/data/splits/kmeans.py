"""Clusters of molecules by k-means of their Morgan fingerprints."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence

import numpy as np

from molgcn.data.fingerprints import morgan_fingerprints
from molgcn.errors import UserError

log = logging.getLogger(__name__)

_MOST_CLUSTERS = 200  # chosen by default, since more take long for large sets
_SECONDS = 4e-6  # for each pair of a molecule and a cluster, in all iterations


def kmeans_groups(smiles: Sequence[str], num_clusters: int | None, seed: int, num_workers: int | None = None) -> np.ndarray:
    """Return the number of each molecule's cluster, int64 [M], by scikit-learn's k-means.

    The fingerprints are a sparse matrix whose sums are whole numbers and are computed in order, so that neither threads nor BLAS change
    the clusters.

    Args:
        smiles: M SMILES.
        num_clusters: number of clusters. None takes a tenth of the molecules, at least 3 and at most 200.
        seed: seed of the first centres.
        num_workers: worker processes for the fingerprints.

    Raises:
        UserError: when there are more clusters than molecules.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    chosen = num_clusters or min(max(len(smiles) // 10, 3), _MOST_CLUSTERS, len(smiles))
    if chosen > len(smiles):
        raise UserError(f"dataset.split_clusters={chosen} are more than the {len(smiles):,} molecules. Use fewer.")
    minutes = len(smiles) * chosen * _SECONDS / 60
    if minutes > 1:
        log.warning(
            "dataset.split=kmeans makes %d clusters of %s molecules, which takes about %.0f minutes. Fewer with dataset.split_clusters= "
            "take less",
            *(chosen, f"{len(smiles):,}", minutes),
        )
    fingerprints = morgan_fingerprints(smiles, num_workers)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # raised for fewer distinct molecules than clusters
        labels: np.ndarray = KMeans(chosen, n_init=1, random_state=seed % 2**32).fit_predict(fingerprints)
    return labels.astype(np.int64)
