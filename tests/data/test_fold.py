"""Folding against a search for atoms alike one by one."""

import gc
import weakref

import numpy as np
import pytest
import torch
from fold_cases import random_trees, rows_of_atoms
from hypothesis import given, settings
from hypothesis import strategies as st

from molgcn.data import PackedMolecules, fold
from molgcn.data.loader import PackedLoader
from molgcn.errors import UserError

SIZES = [5, 9, 1, 2, 30, 3, 64, 7]


@settings(max_examples=80, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    seed=st.integers(0, 2**16),
    kinds=st.integers(1, 4),
    ring_bonds=st.sampled_from([0.0, 0.3, 1.0]),
    at_once=st.sampled_from([1, 3, 100]),
)
def test_rows_are_the_atoms_that_differ(sizes, seed, kinds, ring_bonds, at_once):
    molecules = random_trees(sizes, 3, seed, kinds, ring_bonds)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fold, "MOLECULES_AT_ONCE", at_once)
        folded = fold.fold(molecules)
    rows = rows_of_atoms(molecules)
    first = np.unique(rows, return_index=True)[1]
    owner = np.repeat(np.arange(len(molecules)), molecules.num_nodes_per_graph)
    assert np.array_equal(folded.node_ptr, np.searchsorted(owner[first], np.arange(len(molecules) + 1)))
    assert np.array_equal(folded.x, molecules.x[first]) and np.array_equal(folded.degree, molecules.degree[first])
    starts = np.cumsum(molecules.degree, dtype=np.int64) - molecules.degree
    expected = [
        rows[molecules.neighbors[bond] + molecules.node_ptr[owner[atom]]] - folded.node_ptr[owner[atom]]
        for atom in first
        for bond in range(starts[atom], starts[atom] + molecules.degree[atom])
    ]
    assert folded.neighbors.tolist() == expected
    assert np.array_equal(np.diff(folded.edge_ptr), np.bincount(owner[first], folded.degree, len(molecules)))
    assert folded.folded and folded.targets is molecules.targets


def test_a_row_stands_for_at_most_255_atoms():
    star = np.stack([np.arange(1, 601), np.zeros(600, int)])
    edges = np.concatenate([star, star[::-1]], axis=1)
    molecules = PackedMolecules.from_arrays(np.array([601]), np.array([1200]), edges, codes=np.zeros(601, int), table=np.ones((1, 2)))
    folded = fold.fold(molecules)
    assert folded.degree.tolist() == [600, 1, 1, 1]
    assert np.bincount(folded.neighbors[:600]).tolist() == [0, 255, 255, 90]


def test_it_is_done_once_and_forgotten_with_the_set():
    molecules = random_trees(SIZES, 3)
    folded = fold.fold(molecules)
    assert fold.fold(molecules) is folded and fold.fold(folded) is folded
    gone = weakref.ref(folded)
    del molecules, folded
    gc.collect()
    assert gone() is None


def test_features_that_are_not_coded_stay():
    whole = random_trees(SIZES, 3)
    molecules = PackedMolecules.from_arrays(
        np.array([3]), np.array([4]), np.array([[0, 1, 0, 2], [1, 0, 2, 0]]), x=np.random.default_rng(0).normal(size=(3, 2))
    )
    assert molecules.table is None and fold.fold(molecules) is molecules
    assert fold.fold(whole) is not whole


def test_batches_say_so_and_refuse_what_needs_all_atoms(tmp_path):
    molecules = random_trees(SIZES, 3)
    folded = fold.fold(molecules)
    batch = folded.batch([0, 4])
    loaded = next(iter(PackedLoader(folded, 3)))
    for one in (batch, batch.clone(), batch.double(), batch.to("meta"), loaded, loaded.padded, loaded.clone(), folded[[1, 2]].batch([0])):
        assert one.folded
        with pytest.raises(UserError, match="folded: atoms alike are one row"):
            one.edge_index  # noqa: B018
    with pytest.raises(UserError, match="is folded"):
        batch.to_pyg()
    for refused in (folded.to_pyg, lambda: folded.save(tmp_path / "set")):
        with pytest.raises(UserError, match="This set is folded"):
            refused()
    with pytest.raises(UserError, match="folded is False, not True"):
        PackedMolecules.concat([folded, molecules])
    assert not molecules.batch([0]).folded and not next(iter(PackedLoader(molecules, 3))).padded.folded


def test_joined_sets_stay_folded():
    parts = [random_trees(SIZES, 3, seed) for seed in (0, 1)]
    joined = PackedMolecules.concat([fold.fold(part) for part in parts])
    assert joined.folded and torch.equal(joined.batch([9]).col, fold.fold(parts[1]).batch([1]).col)
