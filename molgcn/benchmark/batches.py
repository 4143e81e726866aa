"""The batches on which kernels are compared."""

from __future__ import annotations

import numpy as np
import torch

from molgcn.data import GraphBatch, PackedMolecules
from molgcn.data.tiles import best_fit


def first_batch(molecules: PackedMolecules, batch_size: int, device: str | torch.device = "cpu") -> GraphBatch:
    """The first B molecules as the training loader hands them out: ordered so that they fill tiles. PyG gets them in the same order.

    Args:
        molecules: repeated where there are fewer than B.
        batch_size: B.
        device: where the batch lies.
    """
    indices = np.arange(batch_size) % len(molecules)
    order, tile_ptr = best_fit(molecules.num_nodes_per_graph[indices], molecules.tile_nodes)
    return GraphBatch.from_packed(molecules, indices[order], tile_ptr).to(device)
