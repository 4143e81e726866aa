"""The batches on which kernels are compared."""

from __future__ import annotations

import numpy as np
import torch

from molgcn.config import ModelConfig
from molgcn.data import GraphBatch, PackedMolecules
from molgcn.data.tile_choice import rows_for, tile_nodes_for
from molgcn.data.tiles import fill_tiles
from molgcn.ops.precision import allowed_precision


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
    return _in_tiles(molecules, _drawn(molecules, batch_size), torch.device(device), model)


def training_batch(
    molecules: PackedMolecules, batch_size: int, device: str | torch.device, model: ModelConfig
) -> tuple[GraphBatch, GraphBatch]:
    """As :func:`random_batch`, but folded where the training loader folds for backend=fused.

    Returns:
        - the batch
        - the same molecules, in the same order, with all their atoms: for PyG
    """
    indices, device = _drawn(molecules, batch_size), torch.device(device)
    rows = rows_for(molecules, indices, model, "auto", device)
    batch = _in_tiles(rows, indices, device, model)
    return batch, GraphBatch.from_packed(molecules, batch.indices.cpu().numpy()).to(device) if batch.folded else batch


def _drawn(molecules: PackedMolecules, batch_size: int) -> np.ndarray:
    return np.resize(np.random.Generator(np.random.PCG64(0)).permutation(len(molecules)), batch_size)


def _in_tiles(molecules: PackedMolecules, indices: np.ndarray, device: torch.device, model: ModelConfig | None) -> GraphBatch:
    sizes = molecules.num_nodes_per_graph
    tile_nodes = molecules.tile_nodes if model is None else tile_nodes_for(sizes, indices, model, device, allowed_precision(device))
    order, tile_ptr = fill_tiles(sizes[indices], tile_nodes)
    return GraphBatch.from_packed(molecules, indices[order], tile_ptr, tile_nodes).to(device)
