"""Matrices of rows are read from both layouts of a .npz file, and mistakes name the file and the molecule."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from molgcn.data.row_matrices import RowMatrices, read_row_matrices
from molgcn.errors import UserError

ONE = [np.ones((2, 3)), np.zeros((0, 3)), np.full((1, 3), 7.0)]


def read(path, **saved):
    np.savez(path, **saved)
    return read_row_matrices(path, "dataset.atom_features_path", "atom_feature")


@given(st.lists(st.integers(0, 4).flatmap(lambda rows: arrays(np.float32, (rows, 2), elements=st.floats(-9, 9, width=32))), min_size=1))
def test_both_layouts_hold_the_same(tmp_path_factory, matrices):
    """Chemprop writes `numpy.savez(path, *matrices)`; its files are read as they are."""
    folder = tmp_path_factory.mktemp("npz")
    if not sum(map(len, matrices)):
        matrices.append(np.ones((1, 2), np.float32))
    several = read(folder / "a.npz", **{f"arr_{number}": one for number, one in enumerate(matrices)})
    offsets = np.cumsum([0, *map(len, matrices)])
    one = read(folder / "b.npz", x=np.concatenate(matrices), offsets=offsets)
    for found in (several, one):
        assert len(found) == len(matrices) and found.names == ("atom_feature_0", "atom_feature_1")
        assert all(np.array_equal(found[row], matrix) for row, matrix in enumerate(matrices))
    order = np.arange(len(matrices))[::-1]
    assert all(np.array_equal(a, b) for a, b in zip(several.take(order), matrices[::-1], strict=True))


def test_empty_arrays_of_any_shape_have_no_rows_and_names_are_read(tmp_path):
    np.savez(tmp_path / "a.npz", np.zeros(0), np.ones((2, 2), int), np.zeros((0, 5)), names=np.array(["charge", "spin"]))
    found = read_row_matrices(tmp_path / "a.npz", "x", "atom_feature")
    assert found.sizes.tolist() == [0, 2, 0] and found.names == ("charge", "spin") and found.values.dtype == np.float32
    assert RowMatrices.of([np.zeros(0), np.ones((1, 2))], ["a", "b"]).sizes.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("saved", "match"),
    [
        ({"arr_0": ONE[0], "arr_1": np.ones((2, 4))}, r"molecule 1 \(arr_1\): it has 4 columns, and those before have 3"),
        ({"arr_0": ONE[0], "arr_1": np.ones(4)}, r"molecule 1 \(arr_1\) has shape \[4\] and type float64"),
        ({"arr_0": np.array([["a"]])}, r"molecule 0 \(arr_0\) has shape \[1, 1\] and type <U1"),
        ({"arr_0": np.zeros((0, 3))}, "has no numbers"),
        ({"x": ONE[0]}, r"has 1 arrays \(x\)\. Expected a .npz file with a matrix of numbers for each molecule"),
        ({"arr_0": ONE[0], "arr_2": ONE[0]}, r"has 2 arrays \(arr_0, arr_2\)"),
        ({"x": ONE[0], "offsets": np.array([0, 1])}, "the number of its rows, 2"),
        ({"x": ONE[0], "offsets": np.array([0, 2, 1, 2])}, "do not fall"),
        ({"x": ONE[0], "offsets": np.array([0.0, 2.0])}, "whole numbers"),
        ({"x": ONE[0], "y": ONE[0], "offsets": np.array([0, 2])}, "has 2 arrays beside `offsets`"),
        ({"arr_0": ONE[0], "names": np.array(["a", "a", "b"])}, "expected 3 different names"),
        ({"arr_0": np.array([{}])}, "cannot be read: Object arrays"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, saved, match):
    with pytest.raises(UserError, match=rf"dataset\.atom_features_path={re.escape(str(tmp_path))}.*{match}"):
        read(tmp_path / "a.npz", **saved)


@pytest.mark.parametrize("name", ["a.csv", "a.npy"])
def test_another_kind_of_file_is_no_advice_on_pickles(tmp_path, name):
    path = tmp_path / name
    if name == "a.csv":
        path.write_text("smiles,x\nC,1\n")
    else:
        np.save(path, ONE[0])
    with pytest.raises(UserError, match=r"is not a \.npz file, or is damaged\. Expected a \.npz file") as error:
        read_row_matrices(path, "dataset.atom_features_path", "atom_feature")
    assert "pickle" not in str(error.value)
