"""The batches on which kernels are compared."""

from __future__ import annotations

import numpy as np
import torch

from molgcn.config.run import ModelConfig
from molgcn.data.batch import GraphBatch
from molgcn.data.layout import BatchLayout
from molgcn.data.merge_leaves import merge_leaves
from molgcn.data.molecule_set import MoleculeSet
from molgcn.data.tiles import fill_tiles
from molgcn.nn.batch_layout import batch_layout


def random_batch(
    molecules: MoleculeSet, batch_size: int, device: str | torch.device = "cpu", model: ModelConfig | None = None
) -> GraphBatch:
    """Return a batch of B molecules, drawn at random with a fixed seed and ordered to fill tiles, as in the training loader.

    The first B molecules would not do, since sets are often sorted, QM9 by size. PyG gets the molecules in the same order.

    Args:
        molecules: the set; every molecule is drawn once before one is drawn again.
        batch_size: number of molecules, B.
        device: device of the batch.
        model: the model that reads the batch, if known; its kernels determine the tiles.
    """
    indices, device = _drawn(molecules, batch_size), torch.device(device)
    layout = BatchLayout()
    if model is not None:
        layout = batch_layout(model, "fused", "auto", molecules, indices, device, can_merge=False)
    return _in_tiles(molecules, indices, device, layout)


def training_batch(
    molecules: MoleculeSet, batch_size: int, device: str | torch.device, model: ModelConfig, layout: BatchLayout | None = None
) -> tuple[GraphBatch, GraphBatch]:
    """Return the molecules of :func:`random_batch` as backend=fused trains on them, and as PyG does.

    Args:
        molecules: the set; every molecule is drawn once before one is drawn again.
        batch_size: number of molecules, B.
        device: device of the batches.
        model: the model that reads the batches.
        layout: layout of the first batch; None is the training loader's.

    Returns:
        - the batch for backend=fused, in which equal leaves are one row if the layout merges them
        - the batch for PyG: the same molecules in the same order, with all their atoms
    """
    indices, device = _drawn(molecules, batch_size), torch.device(device)
    layout = layout or batch_layout(model, "fused", "auto", molecules, indices, device)
    batch = _in_tiles(merge_leaves(molecules) if layout.merge_leaves else molecules, indices, device, layout)
    return batch, GraphBatch.from_packed(molecules, batch.indices.cpu().numpy()).to(device) if batch.leaves_merged else batch


def _drawn(molecules: MoleculeSet, batch_size: int) -> np.ndarray:
    return np.resize(np.random.Generator(np.random.PCG64(0)).permutation(len(molecules)), batch_size)


def _in_tiles(molecules: MoleculeSet, indices: np.ndarray, device: torch.device, layout: BatchLayout) -> GraphBatch:
    tile_nodes = layout.tile_nodes or molecules.tile_nodes
    order, tile_ptr = fill_tiles(molecules.num_nodes_per_graph[indices], tile_nodes)
    return GraphBatch.from_packed(molecules, indices[order], tile_ptr, tile_nodes).to(device)
