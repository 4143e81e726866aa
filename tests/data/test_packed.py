import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from graphs import assert_collated, molecule_lists, random_data
from hypothesis import given
from hypothesis import strategies as st

from molgcn.data import PackedMolecules, molecule_set
from molgcn.data.loader import PackedLoader, PyGLoader
from molgcn.errors import UserError


@pytest.fixture
def molecules():
    rng = np.random.default_rng(1)
    data = [random_data(rng, int(n), num_edge_features=2) for n in rng.integers(1, 9, 12)]
    return PackedMolecules.from_pyg(data, smiles=[f"C{i}" for i in range(12)], target_names=["a", "b"], target_units=["eV", ""])


@given(molecule_lists(), st.data())
def test_a_batch_of_any_molecules_is_pygs(data, draw):
    packed = PackedMolecules.from_pyg(data)
    indices = draw.draw(st.lists(st.integers(0, len(data) - 1), min_size=1, max_size=10))
    assert_collated(packed.batch(np.array(indices)), data, bonds=True)


@given(molecule_lists(), st.data())
def test_a_subset_is_the_set_of_these_molecules(data, draw):
    packed = PackedMolecules.from_pyg(data)
    indices = draw.draw(st.lists(st.integers(0, len(data) - 1), min_size=1, max_size=10))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(molecule_set, "MOLECULES_AT_ONCE", draw.draw(st.integers(1, 11)))
        subset = packed[indices]
    expected = PackedMolecules.from_pyg([data[i] for i in indices])
    for name in ("node_ptr", "edge_ptr", "degree", "neighbors"):
        assert np.array_equal(getattr(subset, name), getattr(expected, name)), name
    assert np.array_equal(subset.node_features(), expected.node_features())
    assert subset.num_edge_features == expected.num_edge_features
    assert subset.edge_attr is None or np.array_equal(subset.edge_features(), expected.edge_features())
    assert np.array_equal(subset.targets, expected.targets, equal_nan=True)
    assert subset.rows.tolist() == indices
    assert all(getattr(subset, name).dtype == getattr(packed, name).dtype for name in ("degree", "neighbors", "x"))


def test_matrices_may_come_column_by_column(tmp_path):
    """Matrices from pandas lie so; once they were packed unchanged, and the loader raised a TypeError."""
    x, targets = np.arange(9, dtype=np.float32).reshape(3, 3), np.arange(4, dtype=np.float32).reshape(2, 2)
    packed = PackedMolecules.from_arrays([2, 1], [2, 0], [[0, 1], [1, 0]], x=np.asfortranarray(x), targets=np.asfortranarray(targets))
    packed.save(tmp_path / "set")
    (batch,) = PackedLoader(PackedMolecules.load(tmp_path / "set"), 2, shuffle=False)
    assert batch.x.tolist() == x.tolist() and batch.targets.tolist() == targets.tolist()


@pytest.mark.parametrize(("doing", "bytes_a_bond"), [("packing", 20), ("selecting", 12), ("loading", 4)])
def test_little_memory_is_taken_beside_a_large_set(tmp_path, doing, bytes_a_bond):
    """The set itself takes 3 bytes per bond; index arrays of all bonds would take 80, 24 and 10."""
    count, atoms = 150_000, 10
    path = np.stack([np.arange(atoms - 1), np.arange(1, atoms)]).astype(np.uint16)
    bonds = np.tile(np.concatenate([path, path[::-1]], axis=1), count)
    codes, table = np.zeros(atoms * count, np.uint8), np.ones((1, 1))

    def pack():
        return PackedMolecules.from_arrays(np.full(count, atoms), np.full(count, 2 * (atoms - 1)), bonds, codes=codes, table=table)

    packed = pack()
    packed.save(tmp_path / "set")
    do = {"packing": pack, "selecting": lambda: packed[::-1], "loading": lambda: PackedMolecules.load(tmp_path / "set")}[doing]
    tracemalloc.start()
    assert len(do()) == count
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < bytes_a_bond * packed.num_edges


def test_indexing_as_numpy_does(molecules):
    assert len(molecules[3]) == 1 and list(molecules[3].smiles) == ["C3"]
    assert molecules[-2:].rows.tolist() == [10, 11]
    assert molecules[np.arange(12) % 5 == 0].rows.tolist() == [0, 5, 10]
    assert molecules[[4, 4]].rows.tolist() == [4, 4]
    assert molecules[2:5][1].rows.tolist() == [3]
    with pytest.raises(IndexError):
        _ = molecules[12]
    with pytest.raises(UserError, match="no molecules"):
        _ = molecules[[]]


@pytest.mark.parametrize(
    "change",
    [
        {"degree": np.zeros(1, np.uint8)},
        {"neighbors": np.full(1, 200, np.uint8)},
        {"x": np.full(3, 250, np.uint8)},
        {"targets": np.zeros((1, 2), np.float32)},
        {"node_ptr": np.array([0, 10**6])},
        {"table": np.ones((1, 3))},
        {"edge_attr": np.zeros(1, np.uint8)},
        {"edge_attr": None},
        {"edge_table": None},
    ],
    ids=lambda change: next(iter(change)),
)
@pytest.mark.parametrize("taking", [lambda set_: set_.batch([0]), lambda set_: PackedLoader(set_, 2), lambda set_: PyGLoader(set_, 2)])
def test_batches_are_not_taken_from_arrays_that_do_not_fit(molecules, change, taking):
    """C++ and CUDA gather arrays by address."""
    with pytest.raises(UserError, match="do not fit together"):
        taking(replace(molecules, **change))


def test_what_it_says_of_itself(molecules):
    assert "12 molecules" in repr(molecules) and "targets=['a', 'b']" in repr(molecules)
    assert molecules.num_features == 3 and molecules.num_nodes == molecules.num_nodes_per_graph.sum()
    assert molecules.tile_nodes == 64


def test_content_hash_sees_what_a_model_sees(molecules):
    same = molecules[:]
    assert same.content_hash() == molecules.content_hash()
    same.smiles = None
    assert same.content_hash() == molecules.content_hash()
    for name in ("neighbors", "x", "targets", "table", "edge_attr", "edge_table"):
        other = molecules[:]
        array = getattr(other, name).copy()
        array.flat[0] += 1
        setattr(other, name, array)
        assert other.content_hash() != molecules.content_hash()


ONE = {"num_nodes": [2], "num_edges": [2], "edge_index": [[0, 1], [1, 0]]}
X = {"x": np.zeros((2, 1))}


def test_codes_and_table_in_place_of_features():
    coded = PackedMolecules.from_arrays(**ONE, codes=np.array([1, 0]), table=np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert coded.node_features().tolist() == [[3, 4], [1, 2]] and coded.x.dtype == np.uint8


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"x": np.zeros((3, 1))}, "features for 3 atoms, but the molecules have 2"),
        ({"codes": np.array([0, 2]), "table": np.zeros((2, 1))}, "outside the table of 2"),
        ({"codes": np.array([0, -1]), "table": np.zeros((2, 1))}, "outside the table of 2"),
        ({"codes": np.array([0, 65_536]), "table": np.zeros((65_537, 1))}, "table has 65,537 feature rows; .* Give x instead"),
        ({"codes": np.array([0, 0]), "table": np.array([[np.nan]])}, "Row 0 of the features `table`"),
        (X | {"edge_attr": np.zeros((3, 1))}, "features for 3 bonds, but edge_index has 2; expected one row per directed bond"),
        (X | {"edge_attr": np.array([[0.0], [np.inf]])}, "Row 1 of the features `edge_attr` holds a value that is not finite"),
        (X | {"edge_attr": np.zeros(2)}, r"`edge_attr` have shape \[2\]"),
        (X | {"edge_codes": np.array([0, 1]), "edge_table": np.zeros((1, 1))}, "code of a bond is outside the edge_table of 1"),
        (X | {"edge_codes": np.array([0, 0]), "edge_table": np.zeros((65_537, 1))}, "The edge_table has 65,537 .* Give edge_attr instead"),
        ({"x": np.zeros((2, 1)), "targets": np.zeros((1, 2)), "target_names": ["a"]}, "2 targets, 1 names"),
        ({"x": np.zeros((2, 1)), "smiles": ["C", "N"]}, "2 SMILES for 1 molecules"),
    ],
)
def test_arrays_that_do_not_fit(options, match):
    with pytest.raises(UserError, match=match):
        PackedMolecules.from_arrays(**ONE, **options)


def test_bonds_in_two_ways():
    for options in (
        {"edge_codes": np.zeros(2)},
        {"edge_attr": np.zeros((2, 1)), "edge_codes": np.zeros(2), "edge_table": np.zeros((1, 1))},
    ):
        with pytest.raises(ValueError, match="either edge_attr, or edge_codes and edge_table"):
            PackedMolecules.from_arrays(**ONE, **X, **options)


@pytest.mark.parametrize("options", [{}, {"codes": np.zeros(2)}, {"x": np.zeros((2, 1)), "codes": np.zeros(2), "table": np.zeros((1, 1))}])
def test_features_in_two_ways_or_none(options):
    with pytest.raises(ValueError, match="either x, or codes and table"):
        PackedMolecules.from_arrays(**ONE, **options)
