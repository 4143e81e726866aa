"""Merging finds the same equal leaves as a search one by one."""

import gc
import weakref

import numpy as np
import pytest
import torch
from compiler import needs_extension
from hypothesis import given, settings
from hypothesis import strategies as st
from leaf_cases import random_trees, rows_of_atoms
from torch_geometric.data import Data

from molgcn.data import GraphBatch, PackedMolecules, merge_leaves
from molgcn.data.loader import PackedLoader
from molgcn.errors import UserError
from molgcn.nn import GCN

pytestmark = needs_extension

SIZES = [5, 9, 1, 2, 30, 3, 64, 7]


@settings(max_examples=80)
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
        patch.setattr(merge_leaves, "MOLECULES_AT_ONCE", at_once)
        merged = merge_leaves.merge_leaves(molecules)
    rows = rows_of_atoms(molecules)
    first = np.unique(rows, return_index=True)[1]
    owner = np.repeat(np.arange(len(molecules)), molecules.num_nodes_per_graph)
    assert np.array_equal(merged.node_ptr, np.searchsorted(owner[first], np.arange(len(molecules) + 1)))
    assert np.array_equal(merged.x, molecules.x[first]) and np.array_equal(merged.degree, molecules.degree[first])
    starts = np.cumsum(molecules.degree, dtype=np.int64) - molecules.degree
    expected = [
        rows[molecules.neighbors[bond] + molecules.node_ptr[owner[atom]]] - merged.node_ptr[owner[atom]]
        for atom in first
        for bond in range(starts[atom], starts[atom] + molecules.degree[atom])
    ]
    assert merged.neighbors.tolist() == expected
    assert np.array_equal(np.diff(merged.edge_ptr), np.bincount(owner[first], merged.degree, len(molecules)))
    assert merged.leaves_merged and merged.targets is molecules.targets


def test_a_row_stands_for_at_most_255_atoms():
    star = np.stack([np.arange(1, 601), np.zeros(600, int)])
    edges = np.concatenate([star, star[::-1]], axis=1)
    molecules = PackedMolecules.from_arrays(np.array([601]), np.array([1200]), edges, codes=np.zeros(601, int), table=np.ones((1, 2)))
    merged = merge_leaves.merge_leaves(molecules)
    assert merged.degree.tolist() == [600, 1, 1, 1]
    assert np.bincount(merged.neighbors[:600]).tolist() == [0, 255, 255, 90]


def test_the_cpu_operator_takes_more_leaves_than_a_row_stands_for():
    """The CPU operator gives PyG's outputs and gradients."""
    torch.manual_seed(0)
    star = torch.stack([torch.arange(1, 601), torch.zeros(600, dtype=torch.int64)])
    batch = GraphBatch.from_pyg(Data(x=torch.ones(601, 2, dtype=torch.double), edge_index=torch.cat([star, star.flip(0)], dim=1)))
    models = [GCN(2, 8, 3, 1, backend=backend).double() for backend in ("fused", "pyg")]
    models[1].load_state_dict(models[0].state_dict())
    outputs = [model(batch) for model in models]
    torch.testing.assert_close(*outputs, rtol=1e-12, atol=1e-12)
    gradients = [torch.autograd.grad(output.sum(), [*model.parameters()]) for model, output in zip(models, outputs, strict=True)]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-12)


def test_it_is_done_once_and_forgotten_with_the_set():
    molecules = random_trees(SIZES, 3)
    merged = merge_leaves.merge_leaves(molecules)
    assert merge_leaves.merge_leaves(molecules) is merged and merge_leaves.merge_leaves(merged) is merged
    gone = weakref.ref(merged)
    del molecules, merged
    gc.collect()
    assert gone() is None


def test_features_that_are_not_coded_stay():
    whole = random_trees(SIZES, 3)
    molecules = PackedMolecules.from_arrays(
        np.array([3]), np.array([4]), np.array([[0, 1, 0, 2], [1, 0, 2, 0]]), x=np.random.default_rng(0).normal(size=(3, 2))
    )
    assert molecules.table is None and merge_leaves.merge_leaves(molecules) is molecules
    assert merge_leaves.merge_leaves(whole) is not whole


def test_without_the_extension_a_set_stays(monkeypatch):
    monkeypatch.setattr(merge_leaves, "HAS_EXTENSION", False)
    molecules = random_trees(SIZES, 3)
    assert merge_leaves.merge_leaves(molecules) is molecules


def test_batches_say_so_and_refuse_what_needs_all_atoms(tmp_path):
    molecules = random_trees(SIZES, 3)
    merged = merge_leaves.merge_leaves(molecules)
    batch = merged.batch([0, 4])
    loaded = next(iter(PackedLoader(merged, 3)))
    for one in (batch, batch.clone(), batch.double(), batch.to("meta"), loaded, loaded.padded, loaded.clone(), merged[[1, 2]].batch([0])):
        assert one.leaves_merged
        with pytest.raises(UserError, match="leaves of this batch are one row"):
            one.edge_index  # noqa: B018
    with pytest.raises(UserError, match="leaves of this batch are one row"):
        batch.to_pyg()
    for refused in (merged.to_pyg, lambda: merged.save(tmp_path / "set")):
        with pytest.raises(UserError, match="leaves of this set are one row"):
            refused()
    with pytest.raises(UserError, match="leaves_merged is False, not True"):
        PackedMolecules.concat([merged, molecules])
    assert not molecules.batch([0]).leaves_merged and not next(iter(PackedLoader(molecules, 3))).padded.leaves_merged


def test_joined_sets_stay_merged():
    parts = [random_trees(SIZES, 3, seed) for seed in (0, 1)]
    joined = PackedMolecules.concat([merge_leaves.merge_leaves(part) for part in parts])
    assert joined.leaves_merged and torch.equal(joined.batch([9]).col, merge_leaves.merge_leaves(parts[1]).batch([1]).col)
