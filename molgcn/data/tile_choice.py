"""Which tiles a batch is planned in: what the model's kernels are fastest with."""

from __future__ import annotations

import numpy as np
import torch

from molgcn.config import ModelConfig
from molgcn.data.tiles import TILE_SIZES, best_fit, tile_size
from molgcn.ops.gcn_stack_plan import time_of_tiles
from molgcn.ops.launch import gpu

SMALL_TILE = 48  # places: quicker each, but more of them
_MORE_WARPS = 3  # tiles a multiprocessor up to which each gets several warps, which suits the larger ones


def tile_nodes_for(sizes: np.ndarray, model: ModelConfig, device: torch.device) -> int:
    """Node places of a tile, T, for batches like one.

    64, or 128 where a molecule needs it. Where a network of at most 32 features without norm and residual runs on a GPU and all
    molecules have at most 48 atoms, 48 if the GPU's busiest scheduler is then done earlier: see docs/decisions/cuda_operator.md.

    Args:
        sizes: int [B], atoms of the molecules of a typical batch.
        model: whose operator takes the batches.
        device: where it runs.
    """
    usual = tile_size(int(sizes.max(initial=1)))
    plain = model.hidden_channels <= 32 and model.norm is None and not model.residual
    if device.type != "cuda" or not plain or sizes.max(initial=1) > SMALL_TILE:
        return usual
    device_gpu = gpu(device)
    tiles = {size: len(best_fit(sizes, size)[1]) - 1 for size in (SMALL_TILE, TILE_SIZES[0])}
    if tiles[TILE_SIZES[0]] <= _MORE_WARPS * device_gpu.num_multiprocessors:
        return usual
    return min(tiles, key=lambda size: time_of_tiles(tiles[size], size, device_gpu))
