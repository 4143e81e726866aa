"""Groups of molecules that stay in one part of a split: scaffolds, clusters of fingerprints, and equal cells of a column."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence

import numpy as np

from molgcn.data.fingerprints import check_pairs, morgan_fingerprints, murcko_scaffolds, tanimoto_distances
from molgcn.data.tables import is_missing
from molgcn.errors import UserError, counted, shown

log = logging.getLogger(__name__)

_MOST_CLUSTERS = 200  # of k-means, chosen by default, since more take long for large sets
_SECONDS = 4e-6  # of k-means for each pair of a molecule and a cluster, in all iterations


def scaffold_groups(smiles: Sequence[str], num_workers: int | None = None) -> np.ndarray:
    """Return the number of each molecule's scaffold, int64 [M], in alphabetical order of the scaffolds' SMILES.

    Molecules without rings share the empty scaffold.
    """
    return np.unique(np.array(murcko_scaffolds(smiles, num_workers), object), return_inverse=True)[1]


def butina_groups(smiles: Sequence[str], cutoff: float, num_workers: int | None = None) -> np.ndarray:
    """Return the number of each molecule's cluster, int64 [M], by RDKit's Butina clustering of Morgan fingerprints.

    The largest Tanimoto distance of a molecule from the centre of its cluster is `cutoff`. A matrix of all pairs, of one byte each, must
    fit into memory. Source: Butina, J. Chem. Inf. Comput. Sci. 39, 747, 1999.
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


def kmeans_groups(smiles: Sequence[str], num_clusters: int | None, seed: int, num_workers: int | None = None) -> np.ndarray:
    """Return the number of each molecule's cluster, int64 [M], by scikit-learn's k-means of Morgan fingerprints.

    The fingerprints are a sparse matrix whose sums are whole numbers and are computed in order, so that neither threads nor BLAS change the
    clusters. By default there are a tenth as many clusters as molecules, at least 3 and at most 200.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    chosen = num_clusters or min(max(len(smiles) // 10, 3), _MOST_CLUSTERS, len(smiles))
    if chosen > len(smiles):
        raise UserError(f"dataset.split_clusters={chosen} are more than the {counted(len(smiles), 'molecule')}. Use fewer.")
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


def column_groups(cells: Sequence[str], column: str) -> np.ndarray:
    """Return the group of each molecule by its cell, int64 [M]. Blanks around a text do not count.

    A molecule whose cell is empty is a group of its own, and a warning says how many there are.
    """
    number: dict[str, int] = {}
    missing = [is_missing(cell, of_numbers=False) for cell in cells]
    keys = (f" {place}" if alone else cell.strip() for place, (cell, alone) in enumerate(zip(cells, missing, strict=True)))
    groups = np.array([number.setdefault(key, len(number)) for key in keys], np.int64)
    if any(missing):
        log.warning(
            "Column '%s' is empty for %s of %s molecules, each of which is a group of its own",
            *(shown(column), f"{sum(missing):,}", f"{len(cells):,}"),
        )
    return groups


def join_groups(labels: np.ndarray, copies: np.ndarray | None) -> np.ndarray:
    """Join groups of molecules, `labels` int [M], that share a copy of a molecule, equal numbers in `copies` int [M].

    The result is the least label of the groups that copies connect with each molecule's own group.
    """
    if copies is None:
        return labels
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    names, group = np.unique(labels, return_inverse=True)
    values, copy = np.unique(copies, return_inverse=True)
    links = coo_array((np.ones(len(group), bool), (group, copy + len(names))), shape=(len(names) + len(values),) * 2)
    component = connected_components(links, directed=False)[1][: len(names)]
    return names[np.unique(component, return_index=True)[1][component]][group]
