import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from molgcn.data import PackedMolecules
from molgcn.data.descriptors.attach import unusable, with_descriptors
from molgcn.errors import UserError

SMILES = ["CCO", "C", "CCN"]


@pytest.fixture(scope="module")
def molecules():
    return PackedMolecules.from_smiles(SMILES, num_workers=0)


def test_they_follow_the_molecules_wherever_these_go(molecules, tmp_path):
    values = np.arange(6.0).reshape(3, 2)
    described = with_descriptors(molecules, values, ["a", "b"])
    assert described.descriptors.dtype == np.float32 and described.descriptor_names == ("a", "b")
    assert described[[2, 0]].descriptors.tolist() == [[4, 5], [0, 1]]
    both = PackedMolecules.concat([described, described[[1]]])
    assert both.descriptors.tolist() == [[0, 1], [2, 3], [4, 5], [2, 3]]
    assert both.batch([3, 0]).descriptors.tolist() == [[2, 3], [0, 1]]
    assert both.batch([3, 0]).to_pyg().descriptors.tolist() == [[2, 3], [0, 1]]
    described.save(tmp_path / "set")
    loaded = PackedMolecules.load(tmp_path / "set")
    assert loaded.descriptors.tolist() == values.tolist() and loaded.descriptor_names == ("a", "b")
    assert described.content_hash() != molecules.content_hash() == PackedMolecules.from_smiles(SMILES, num_workers=0).content_hash()


def test_new_ones_come_first(molecules):
    described = with_descriptors(with_descriptors(molecules, np.ones((3, 1)), ["rdkit"]), np.zeros((3, 2)))
    assert described.descriptor_names == ("d0", "d1", "rdkit") and described.descriptors.tolist() == [[0, 0, 1]] * 3


@pytest.mark.parametrize(
    ("values", "names", "match"),
    [
        (np.zeros((2, 1)), ["a"], r"shape \[2, 1\]; expected \[3, K\]"),
        (np.zeros(3), ["a"], "shape"),
        (np.zeros((3, 2)), ["a"], "one name each"),
        (np.zeros((3, 2)), ["a", "a"], "none twice"),
        (np.array([[0], [np.nan], [0]]), ["ph"], "Molecule 1: its descriptor 'ph' is missing"),
        (np.array([[0], [0], [np.inf]]), ["ph"], "Molecule 2: its descriptor 'ph' is not finite"),
    ],
)
def test_what_does_not_fit(molecules, values, names, match):
    with pytest.raises(UserError, match=match):
        with_descriptors(molecules, values, names)


def test_sets_with_other_descriptors_are_not_joined(molecules):
    with pytest.raises(UserError, match="descriptor_names"):
        PackedMolecules.concat([molecules, with_descriptors(molecules, np.zeros((3, 1)))])


@given(st.lists(st.lists(st.sampled_from([0.0, -1e38, 1e39, np.nan, -np.inf]), min_size=3, max_size=3), max_size=8))
def test_unusable_rows_are_those_with_a_value_that_float32_does_not_hold(rows):
    values = np.array(rows).reshape(-1, 3)
    with np.errstate(over="ignore"):
        assert [*unusable(values, "abc")] == np.flatnonzero(~np.isfinite(values.astype(np.float32)).all(axis=1)).tolist()
    for place, reason in unusable(values, "abc").items():
        column = "abc".index(reason.split("'")[1])
        assert np.isfinite(values[place, :column].astype(np.float32)).all() and ("missing" in reason) == np.isnan(values[place, column])
