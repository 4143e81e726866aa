import numpy as np
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from molgcn.data.fingerprints import morgan_fingerprints
from molgcn.data.splits.groups import kmeans_groups

SMILES = [ring + "C" * n for ring in ("c1ccccc1", "C1CCCCC1O", "C#N", "C1CC1N", "OC(=O)") for n in range(8)]


def partition(groups):
    return {frozenset(np.flatnonzero(groups == number).tolist()) for number in np.unique(groups)}


def test_clusters_are_those_of_dense_bits():
    dense = KMeans(5, n_init=1, random_state=7).fit_predict(morgan_fingerprints(SMILES).toarray())
    assert partition(kmeans_groups(SMILES, 5, 7)) == partition(dense)
    assert len(np.unique(kmeans_groups(SMILES, None, 0))) == 4  # a tenth of them


def test_threads_do_not_change_clusters():
    smiles = [ring + "C" * n + tail for ring in ("c1ccccc1", "C1CCCCC1O", "C#N") for n in range(60) for tail in ("", "O", "N", "(C)C")]
    one, several = [], []
    for threads, groups in ((1, one), (4, several)):
        with threadpool_limits(threads):
            groups.extend(kmeans_groups(smiles, 40, 3).tolist())
    assert one == several  # 720 molecules make three chunks


def test_fewer_different_molecules_than_clusters():
    assert len(np.unique(kmeans_groups(["CCO"] * 6 + ["CCN"] * 6, 4, 0))) == 2
