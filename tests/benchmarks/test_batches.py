import numpy as np
import torch

from molgcn.config.run import ModelConfig
from molgcn.data import PackedMolecules
from molgcn.data.layout import BatchLayout
from molgcn_benchmark.batches import random_batch, training_batch


def test_molecules_are_drawn_once_before_they_are_drawn_again():
    smiles = ["C" * length for length in range(1, 41)]  # sorted by size, as QM9 is
    alkanes = PackedMolecules.from_smiles(smiles, num_workers=0)
    few, all_of_them, more = (random_batch(alkanes, size).indices.numpy() for size in (10, 40, 50))
    assert len(np.unique(few)) == 10
    assert np.array_equal(np.sort(all_of_them), np.arange(40))
    assert sorted(np.bincount(more)) == [1] * 30 + [2] * 10
    assert 5 < few.mean() < 35  # not the first ten, nor the last
    assert np.array_equal(random_batch(alkanes, 10).indices.numpy(), few)


def test_full_tiles():
    alkanes = PackedMolecules.from_smiles(["C" * 12, "C" * 10, "C" * 8], num_workers=0)
    assert alkanes.num_nodes_per_graph.tolist() == [38, 32, 26]
    batch = random_batch(alkanes, 6)
    assert sorted(batch.indices.tolist()) == [0, 0, 1, 1, 2, 2]
    assert np.diff(batch.ptr.numpy()[batch.tile_ptr.numpy()]).tolist() == [64, 64, 64]  # 38 + 26 and 32 + 32
    assert np.array_equal(batch.x.numpy(), alkanes.batch(batch.indices.numpy()).x.numpy())


def test_a_batch_with_merged_leaves_has_the_molecules_of_pygs_in_the_same_order():
    alkanes = PackedMolecules.from_smiles(["C" * length for length in range(1, 21)], num_workers=0)
    given, whole = training_batch(alkanes, 12, "cpu", ModelConfig(norm=None))
    assert given is whole and not given.leaves_merged
    given, whole = training_batch(alkanes, 12, "cpu", ModelConfig(norm=None), BatchLayout(64, merge_leaves=True))
    assert given.leaves_merged and not whole.leaves_merged
    assert torch.equal(given.indices, whole.indices) and given.num_nodes < whole.num_nodes
    assert sorted(whole.indices.tolist()) == sorted(random_batch(alkanes, 12).indices.tolist())
