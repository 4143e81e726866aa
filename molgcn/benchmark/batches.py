"""The batches on which kernels are compared."""

from __future__ import annotations

import numpy as np
import torch

from molgcn.config import ModelConfig
from molgcn.data import GraphBatch, PackedMolecules
from molgcn.data.tile_choice import tile_nodes_for
from molgcn.data.tiles import fill_tiles


def first_batch(
    molecules: PackedMolecules, batch_size: int, device: str | torch.device = "cpu", model: ModelConfig | None = None
) -> GraphBatch:
    """The first B molecules as the training loader hands them out: ordered so that they fill tiles. PyG gets them in the same order.

    Args:
        molecules: repeated where there are fewer than B.
        batch_size: B.
        device: where the batch lies.
        model: what it is for, if known.
    """
    indices = np.arange(batch_size) % len(molecules)
    sizes, device = molecules.num_nodes_per_graph, torch.device(device)
    tile_nodes = molecules.tile_nodes if model is None else tile_nodes_for(sizes, indices, model, device)
    order, tile_ptr = fill_tiles(sizes[indices], tile_nodes)
    return GraphBatch.from_packed(molecules, indices[order], tile_ptr, tile_nodes).to(device)
