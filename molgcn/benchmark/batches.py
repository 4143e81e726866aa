"""The batches on which kernels are compared."""

from __future__ import annotations

import numpy as np
import torch

from molgcn.config import ModelConfig
from molgcn.data import GraphBatch, PackedMolecules
from molgcn.data.tile_choice import tile_nodes_for
from molgcn.data.tiles import fill_tiles


def random_batch(
    molecules: PackedMolecules, batch_size: int, device: str | torch.device = "cpu", model: ModelConfig | None = None
) -> GraphBatch:
    """B molecules drawn at random, always the same ones, as the training loader hands them out: ordered so that they fill tiles.

    The first ones would not do: sets are often sorted, QM9 by size. PyG gets them in the same order.

    Args:
        molecules: each is drawn once before one is drawn again.
        batch_size: B.
        device: where the batch lies.
        model: what it is for, if known.
    """
    indices = np.resize(np.random.Generator(np.random.PCG64(0)).permutation(len(molecules)), batch_size)
    sizes, device = molecules.num_nodes_per_graph, torch.device(device)
    tile_nodes = molecules.tile_nodes if model is None else tile_nodes_for(sizes, indices, model, device)
    order, tile_ptr = fill_tiles(sizes[indices], tile_nodes)
    return GraphBatch.from_packed(molecules, indices[order], tile_ptr, tile_nodes).to(device)
