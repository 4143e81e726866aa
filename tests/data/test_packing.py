import numpy as np
import pytest
from graphs import molecule_lists
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from molgcn.data import packing
from molgcn.data.packing import MAX_BOND_CODES, MAX_CODES, check_features, check_targets, encode_rows, pack_graphs
from molgcn.errors import UserError

PATH = np.array([[0, 1, 1, 2], [1, 0, 2, 1]])


def test_bonds_are_sorted_by_molecule_target_and_source():
    packed = pack_graphs([3, 1, 2], [4, 0, 2], np.concatenate([PATH[:, ::-1], [[0, 1], [1, 0]]], axis=1))
    assert packed["node_ptr"].tolist() == [0, 3, 4, 6] and packed["edge_ptr"].tolist() == [0, 4, 4, 6]
    assert packed["degree"].tolist() == [1, 2, 1, 0, 1, 1] and packed["neighbors"].tolist() == [1, 0, 2, 1, 1, 0]
    assert packed["degree"].dtype == packed["neighbors"].dtype == np.uint8


def test_double_bonds_and_self_loops_stay():
    packed = pack_graphs([2], [5], [[0, 1, 0, 1, 0], [1, 0, 1, 0, 0]])
    assert packed["degree"].tolist() == [3, 2] and packed["neighbors"].tolist() == [0, 1, 1, 0, 0]


@pytest.mark.parametrize(("atoms", "dtype"), [(256, np.uint8), (257, np.uint16), (65_535, np.uint16)])
def test_indices_are_as_wide_as_the_largest_molecule_needs(atoms, dtype):
    ends = np.array([[0, atoms - 1], [atoms - 1, 0]])
    packed = pack_graphs([atoms], [2], ends)
    assert packed["neighbors"].dtype == dtype and packed["neighbors"].tolist() == [atoms - 1, 0]


def test_a_star_of_many_bonds_has_a_wide_degree():
    leaves = np.arange(1, 301)
    packed = pack_graphs([301], [600], [[*leaves, *[0] * 300], [*[0] * 300, *leaves]])
    assert packed["degree"].dtype == np.uint16 and packed["degree"][0] == 300


@pytest.mark.parametrize(
    ("num_nodes", "num_edges", "edge_index", "match"),
    [
        ([], [], [[], []], "no molecules"),
        ([2, 0], [0, 0], [[], []], "Molecule 1 has no atoms"),
        ([1, 65_536], [0, 0], [[], []], "Molecule 1 has 65,536 atoms"),
        ([3], [2], [[0, 3], [3, 0]], "Bond 0 -> 3 of molecule 0 is out of range: it has 3 atoms"),
        ([3, 2], [0, 2], [[0, -1], [-1, 0]], "Bond 0 -> -1 of molecule 1 is out of range"),
        ([3], [1], [[0], [2]], "Molecule 0 has a bond between atoms . and . in one direction only"),
        ([2, 3], [2, 3], [[0, 1, 0, 1, 1], [1, 0, 1, 0, 2]], "Molecule 1 has a bond between atoms 1 and 2 in one direction"),
        ([2], [3], [[0, 1, 0], [1, 0, 1]], "one direction only"),
        ([3], [3], PATH, "Bond counts do not fit"),
        ([3, 2], [4], PATH, "Bond counts do not fit"),
        ([1, 2], [0, 2 * 65_536], np.tile([[0, 1], [1, 0]], 65_536), "Atom 0 of molecule 1 has 65,536 bonds"),
    ],
)
def test_bad_molecules(num_nodes, num_edges, edge_index, match):
    with pytest.raises(UserError, match=match):
        pack_graphs(num_nodes, num_edges, edge_index)


@given(molecule_lists(max_size=9), st.integers(1, 10))
def test_pieces_are_packed_as_the_whole(data, at_once):
    arguments = (
        [item.num_nodes for item in data],
        [item.num_edges for item in data],
        np.concatenate([item.edge_index.numpy() for item in data], axis=1),
    )
    whole = pack_graphs(*arguments)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "MOLECULES_AT_ONCE", at_once)
        pieces = pack_graphs(*arguments)
    for name, array in whole.items():
        assert pieces[name].dtype == array.dtype and np.array_equal(pieces[name], array)


def test_a_mistake_in_a_later_piece_is_named_by_its_molecule_of_the_set(monkeypatch):
    monkeypatch.setattr(packing, "MOLECULES_AT_ONCE", 2)
    for bonds, match in (([[0], [3]], "Bond 0 -> 3 of molecule 2 is out of range"), ([[0], [2]], "Molecule 2 has a bond between")):
        with pytest.raises(UserError, match=match):
            pack_graphs([1, 1, 3], [0, 0, 1], bonds)


@given(npst.arrays(np.float32, st.tuples(st.integers(4, 60), st.integers(1, 4)), elements=st.sampled_from([0.0, -0.0, 1.0, 1.5])))
def test_codes_give_the_rows_back(x):
    coded = encode_rows(x)
    if coded is None:
        assert 2 * len(np.unique(x + 0.0, axis=0)) > len(x)
        return
    codes, table = coded
    assert np.array_equal(table[codes], x) and len(np.unique(table, axis=0)) == len(table)


@pytest.mark.parametrize(("rows", "dtype"), [(256, np.uint8), (257, np.uint16), (MAX_CODES, np.uint16)])
def test_codes_are_as_wide_as_the_table_needs(rows, dtype):
    x = np.tile(np.arange(rows, dtype=np.float32)[:, None], (2, 1))
    coded = encode_rows(x)
    assert coded is not None and coded[0].dtype == dtype and np.array_equal(coded[1][coded[0]], x)


def test_rows_that_rarely_repeat_are_not_coded():
    assert encode_rows(np.arange(10, dtype=np.float32)[:, None]) is None
    for most in (MAX_BOND_CODES, MAX_BOND_CODES + 1):  # both directions of a bond have the same row
        assert (encode_rows(np.tile(np.arange(most, dtype=np.float32)[:, None], (2, 1)), "bond") is None) == (most > MAX_BOND_CODES)
    assert encode_rows(np.tile(np.arange(MAX_CODES + 1, dtype=np.float32)[:, None], (2, 1))) is None


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e39])
def test_features_that_are_not_finite(value):
    with pytest.raises(UserError, match="Row 1 of the features `x`"):
        check_features(np.array([[0.0, 1.0], [2.0, value]]))


@pytest.mark.parametrize("shape", [(3,), (3, 0), (1, 2, 3)])
def test_features_of_another_shape(shape):
    with pytest.raises(UserError, match="have shape"):
        check_features(np.zeros(shape))


def test_targets():
    assert check_targets(None, 3).shape == (3, 0)
    assert check_targets(np.array([1.0, np.nan]), 2).shape == (2, 1)
    assert check_targets(np.ones((2, 3)), 2).dtype == np.float64  # packing chooses the stored dtype


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e39])
def test_infinite_targets(value):
    with pytest.raises(UserError, match="Target 1 of molecule 0 is infinite"):
        check_targets(np.array([[0.0, value]]), 1)


def test_targets_of_another_shape():
    with pytest.raises(UserError, match=r"shape \[2, 1\]; expected \[3, number of targets\]"):
        check_targets(np.zeros(2), 3)
