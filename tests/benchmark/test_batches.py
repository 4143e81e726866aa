import numpy as np

from molgcn.benchmark.batches import first_batch
from molgcn.data import PackedMolecules


def test_the_first_molecules_repeated_in_full_tiles():
    alkanes = PackedMolecules.from_smiles(["C" * 12, "C" * 10, "C" * 8], num_workers=0)
    assert alkanes.num_nodes_per_graph.tolist() == [38, 32, 26]
    batch = first_batch(alkanes, 5)
    assert sorted(batch.indices.tolist()) == [0, 0, 1, 1, 2]
    filled = np.diff(batch.ptr.numpy()[batch.tile_ptr.numpy()])
    assert sorted(filled.tolist()) == [38, 64, 64]  # 38 + 26 and 32 + 32; as they come they would take four tiles
    assert np.array_equal(batch.x.numpy(), alkanes.batch(batch.indices.numpy()).x.numpy())
