import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rdkit import Chem, DataStructs
from rdkit.Chem import rdFingerprintGenerator
from rdkit.ML.Cluster.Butina import ClusterData
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from molgcn.data.fingerprints import morgan_fingerprints
from molgcn.data.splits.drawn import place_groups
from molgcn.data.splits.groups import butina_groups, column_groups, join_groups, kmeans_groups


@given(labels=st.lists(st.tuples(st.integers(-3, 9), st.integers(0, 9)), min_size=1, max_size=40))
def test_groups_that_share_a_copy_are_joined(labels):
    group, copies = np.array(labels).T
    joined = join_groups(group, copies)
    for key in (group, copies):
        assert all(len(np.unique(joined[key == value])) == 1 for value in np.unique(key))
    for name in np.unique(joined):
        assert group[joined == name].min() == name  # the smallest of the connected ones
    np.testing.assert_array_equal(join_groups(joined, copies), joined)
    np.testing.assert_array_equal(join_groups(group, None), group)


@pytest.mark.parametrize(
    ("counts", "num_large", "sizes", "otherwise", "parts"),
    [
        ([90, *[1] * 10], 1, (80, 10, 10), 0, [90, 5, 5]),
        ([90, *[1] * 10], 1, (80, 10, 10), None, [90, 5, 5]),
        ([45, 45, *[1] * 10], 2, (80, 10, 10), 0, [90, 5, 5]),
        ([91, *[1] * 9], 1, (70, 20, 10), 0, [91, 6, 3]),
        ([95, *[1] * 5], 1, (80, 20, 0), 0, [95, 5, 0]),
        ([50, 30, 20], 3, (80, 10, 10), 0, [50, 20, 30]),
        ([4] * 25, 0, (80, 10, 10), 0, [84, 8, 8]),
        ([60, *[1] * 40], 1, (50, 10, 10), 0, [28, 6, 6]),
        ([60, *[1] * 40], None, (50, 10, 10), 0, [40, 0, 0]),
    ],
)
def test_what_huge_groups_leave_is_shared_out(counts, num_large, sizes, otherwise, parts):
    groups = np.repeat(np.arange(len(counts)), counts)
    num_molecules = len(groups) if sum(sizes) == len(groups) else 200
    placed = place_groups(groups, np.arange(len(counts)), sizes, num_molecules, num_large, otherwise)
    assert [(placed == number).sum() for number in range(3)] == parts


SMILES = ["CCO" + "C" * n for n in range(6)] + ["c1ccccc1" + "C" * n for n in range(6)] + ["C1CC1N", "C1CC1NC", "[Na+].[Cl-]"]


@pytest.mark.parametrize("cutoff", [0.2, 0.4, 0.6])
def test_clusters_are_rdkits_own_of_its_own_distances(cutoff):
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    bits = [generator.GetFingerprint(Chem.MolFromSmiles(text)) for text in SMILES]
    distances = [1 - DataStructs.TanimotoSimilarity(bits[i], bits[j]) for i in range(len(bits)) for j in range(i)]
    expected = {frozenset(one) for one in ClusterData(distances, len(bits), cutoff, isDistData=True)}
    groups = butina_groups(SMILES, cutoff)
    assert {frozenset(np.flatnonzero(groups == number).tolist()) for number in np.unique(groups)} == expected
    assert 1 < len(expected) < len(SMILES)


CLUSTERED = [ring + "C" * n for ring in ("c1ccccc1", "C1CCCCC1O", "C#N", "C1CC1N", "OC(=O)") for n in range(8)]


def partition(groups):
    return {frozenset(np.flatnonzero(groups == number).tolist()) for number in np.unique(groups)}


def test_clusters_are_those_of_dense_bits():
    dense = KMeans(5, n_init=1, random_state=7).fit_predict(morgan_fingerprints(CLUSTERED).toarray())
    assert partition(kmeans_groups(CLUSTERED, 5, 7)) == partition(dense)
    assert len(np.unique(kmeans_groups(CLUSTERED, None, 0))) == 4  # a tenth of them


def test_threads_do_not_change_clusters():
    smiles = [ring + "C" * n + tail for ring in ("c1ccccc1", "C1CCCCC1O", "C#N") for n in range(60) for tail in ("", "O", "N", "(C)C")]
    one, several = [], []
    for threads, groups in ((1, one), (4, several)):
        with threadpool_limits(threads):
            groups.extend(kmeans_groups(smiles, 40, 3).tolist())
    assert one == several  # 720 molecules make three chunks


def test_fewer_different_molecules_than_clusters():
    assert len(np.unique(kmeans_groups(["CCO"] * 6 + ["CCN"] * 6, 4, 0))) == 2


def test_equal_cells_are_a_group(caplog):
    assert column_groups(["a", "b", " a", "b ", "A", "1"], "site").tolist() == [0, 1, 0, 1, 2, 3]
    assert not caplog.records


def test_words_for_missing_numbers_are_names(caplog):
    assert column_groups(["US", "NA", "nan", "None", "na", "NA ", "nan", "None", "n/a", "null"], "site").tolist() == [
        0,
        1,
        2,
        3,
        4,
        1,
        2,
        3,
        5,
        6,
    ]
    assert not caplog.records


def test_only_an_empty_cell_is_no_group_and_is_counted(caplog):
    assert column_groups(["a", "", "b", "a", "  "], "site").tolist() == [0, 1, 2, 0, 3]
    assert "Column 'site' is empty for 2 of 5 molecules, each of which is a group of its own" in caplog.text
