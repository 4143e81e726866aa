from itertools import pairwise

import numpy as np
import pytest
from graphs import molecule_lists, random_data
from hypothesis import given
from hypothesis import strategies as st

from molgcn.data import PackedMolecules
from molgcn.data.rows import SkippedRow
from molgcn.errors import UserError


def make(seed=0, levels=2, num_features=3, count=10, num_edge_features=2, **metadata):
    rng = np.random.default_rng(seed)
    bonds = {"num_edge_features": num_edge_features}
    data = [random_data(rng, int(n), num_features, levels=levels, **bonds) for n in rng.integers(5, 9, count)]
    return PackedMolecules.from_pyg(data, **metadata)


@given(molecule_lists(max_size=15), st.integers(0, 15), st.integers(0, 15))
def test_parts_join_to_the_whole(data, first, second):
    cuts = sorted({0, len(data), min(first, len(data)), min(second, len(data))})
    parts = [PackedMolecules.from_pyg(data[a:b]) for a, b in pairwise(cuts)]
    joined, whole = PackedMolecules.concat(parts), PackedMolecules.from_pyg(data)
    for name in ("node_ptr", "edge_ptr", "degree", "neighbors"):
        assert np.array_equal(getattr(joined, name), getattr(whole, name)), name
    assert np.array_equal(joined.node_features(), whole.node_features())
    assert joined.edge_attr is None if whole.edge_attr is None else np.array_equal(joined.edge_features(), whole.edge_features())
    assert np.array_equal(joined.targets, whole.targets, equal_nan=True)


@pytest.mark.parametrize("levels", [(2, 2), (2, 0), (0, 0), (2, 25)])
def test_coded_and_plain_features_join(levels):
    parts = [make(seed=i, levels=level) for i, level in enumerate(levels)]
    joined = PackedMolecules.concat(parts)
    assert np.array_equal(joined.node_features(), np.concatenate([part.node_features() for part in parts]))
    assert joined.node_features().dtype == np.float32
    assert np.array_equal(joined.edge_features(), np.concatenate([part.edge_features() for part in parts]))
    if joined.table is not None:
        assert len(np.unique(joined.table, axis=0)) == len(joined.table)


def test_rows_smiles_and_skipped_rows_are_kept():
    one = make(smiles=[f"C{i}" for i in range(10)], skipped=[SkippedRow(1, "X", "why")])
    other = make(smiles=[f"N{i}" for i in range(10)], skipped=[SkippedRow(2, "Y", "why")])
    joined = PackedMolecules.concat([one[4:6], other[:1]])
    assert joined.rows.tolist() == [4, 5, 0] and list(joined.smiles) == ["C4", "C5", "N0"]
    assert [row.smiles for row in joined.skipped] == ["X", "Y"]
    assert PackedMolecules.concat([one, make()]).smiles is None


@pytest.mark.parametrize(
    ("other", "match"),
    [
        ({"num_features": 4}, "its num_features is 4, not 3"),
        ({"num_edge_features": 0}, "its num_edge_features is 0, not 2"),
        ({"features": "qm9"}, "its features is 'qm9', not None"),
        ({"target_names": ["a", "b"]}, "its target_names"),
        ({"target_units": ["eV", "eV"]}, "its target_units"),
    ],
)
def test_sets_that_do_not_fit(other, match):
    with pytest.raises(UserError, match=match):
        PackedMolecules.concat([make(), make(**other)])


def test_nothing_to_join():
    with pytest.raises(UserError, match="at least one set"):
        PackedMolecules.concat([])
