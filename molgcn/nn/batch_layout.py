"""The layout of batches that the model's kernels are fastest with."""

from __future__ import annotations

import math

import numpy as np
import torch

from molgcn.config.run import ModelConfig
from molgcn.cuda_runtime.launch import gpu
from molgcn.data.layout import BatchLayout
from molgcn.data.merge_leaves import merge_leaves
from molgcn.data.molecule_set import MoleculeSet
from molgcn.data.tiles import TILE_SIZES, plan_tiles, tile_size
from molgcn.nn.network_steps import is_plain_gcn
from molgcn.ops.gcn_layers_plan import pairs_small_tiles
from molgcn.ops.gcn_tile_plan import FEW_TILES
from molgcn.ops.gcn_tile_schedule import MIDDLE_TILE, SMALL_TILE, time_of_tiles
from molgcn.ops.precision import allowed_precision
from molgcn.ops.schedule import automatic

# Measured on an H100. Layouts change no result, only the time that other GPUs take.
_TIME_OF_PAIRED_TILE = 0.62  # of a tile of 48 atoms, two on a multiprocessor, to that of one of 64: docs/decisions/cuda_wide_molecules.md
_MOST_ROWS = 0.95  # merging pays up to this share of rows per atom: docs/decisions/cuda_tile_sizes.md


def batch_layout(
    model: ModelConfig,
    backend: str,
    strategy: str,
    molecules: MoleculeSet,
    typical: np.ndarray,
    device: torch.device,
    precision: str = "32-true",
    *,
    can_merge: bool = True,
) -> BatchLayout:
    """Return the layout in which a model reads the batches of a set.

    With the first three arguments bound, this function is a :class:`molgcn.data.layout.LayoutChoice`. Every backend gets the tiles that
    the fused kernels are fastest with, so that batches do not depend on the backend. Only backend "fused" merges leaves, and not in
    float64.

    Args:
        model: the model that takes the batches.
        backend: "fused", "pyg" or "reference".
        strategy: strategy of the fused operator, "auto" or a name.
        molecules: the set.
        typical: int [B], the molecules of a typical batch.
        device: the device that the model runs on.
        precision: precision of the Trainer, "32-true", "bf16-mixed" or "64-true".
        can_merge: whether the loader can give batches whose equal leaves are one row.
    """
    merges = can_merge and backend == "fused" and precision != "64-true" and merging_pays(molecules, typical, model, strategy, device)
    sizes = (merge_leaves(molecules) if merges else molecules).num_nodes_per_graph
    products = "bf16" if precision == "bf16-mixed" else allowed_precision(device)
    return BatchLayout(
        tile_nodes_for(sizes, typical, model, device, products),
        merges,
        join_single=has_batch_norm(model),
        bonds=model.bonds,
        rwse=model.encodings.rwse,
        bond_rw=model.encodings.bond_rw,
    )


def has_batch_norm(model: ModelConfig) -> bool:
    """Return whether the network has batch norm over atoms, which needs at least two atoms in a batch."""
    in_blocks = model.feed_forward and model.feed_forward_norm == "batch"
    return model.norm == "batch" or in_blocks or model.encodings.rwse > 0 or model.mlp_norm


def merging_pays(molecules: MoleculeSet, batch: np.ndarray, model: ModelConfig, strategy: str, device: torch.device) -> bool:
    """Return whether the model's operator takes merged leaves (:func:`molgcn.data.merge_leaves.merge_leaves`) and is faster with them.

    This is so if strategy `tile` runs without dropout on a GPU, the batch has more than one tile per multiprocessor, and merging saves at
    least a twentieth of the rows. :func:`batch_layout` has the arguments; `batch` are the molecules of a typical one.
    """
    of_atoms = (molecules.component, molecules.atom_targets, molecules.bond_targets)  # which tell leaves apart
    if not _is_plain_gcn(model) or any(array is not None for array in of_atoms):
        return False
    strategy = automatic(model.norm, model.hidden_channels, model.num_layers) if strategy == "auto" else strategy
    if device.type != "cuda" or strategy != "tile" or model.dropout > 0 or molecules.table is None:
        return False
    num_nodes = molecules.num_nodes_per_graph[batch].sum()
    if num_nodes <= gpu(device).num_multiprocessors * molecules.tile_nodes:
        return False
    return merge_leaves(molecules[batch]).num_nodes <= _MOST_ROWS * num_nodes


def tile_nodes_for(sizes: np.ndarray, batch: np.ndarray, model: ModelConfig, device: torch.device, precision: str = "float32") -> int:
    """Return the number of nodes that a tile holds, T, for the batches of a set.

    It is 64, or 128 if a molecule needs that many. A network of at most 32 features without norm and residual may also get 48 or 96 on a
    GPU. The size must hold the largest molecule, and the GPU's busiest scheduler must be done earlier with it. With at most one tile per
    multiprocessor, 128 is taken in place of 96. See docs/decisions/cuda_tile_sizes.md.

    A GCN of 97 to 256 features without batch norm may get 48 where a multiprocessor has room for two such tiles but for one of 64 (on
    Hopper from 193 features on), if the batch does not need too many of them. See docs/decisions/cuda_wide_molecules.md.

    Args:
        sizes: int [M], number of atoms of each molecule of the set.
        batch: int [B], the molecules of a typical batch.
        model: the model whose operator takes the batches.
        device: the device that the operator runs on.
        precision: precision of the matrix products, "float32", "tf32" or "bf16".
    """
    largest = int(sizes.max(initial=1))
    if device.type != "cuda" or largest > MIDDLE_TILE:
        return tile_size(largest)
    device_gpu, whole, all_sizes = gpu(device), np.array([0, len(batch)]), np.ascontiguousarray(sizes, np.int64)
    fitting = [size for size in (SMALL_TILE, TILE_SIZES[0], MIDDLE_TILE) if largest <= size]

    def num_tiles(size: int) -> int:
        return len(plan_tiles(batch.astype(np.int64), whole, all_sizes, size)[0]) - 1

    gcn = _is_plain_gcn(model) and model.norm != "batch"
    if gcn and largest <= SMALL_TILE and pairs_small_tiles(model.hidden_channels, SMALL_TILE, TILE_SIZES[0], device_gpu):
        return SMALL_TILE if _TIME_OF_PAIRED_TILE * num_tiles(SMALL_TILE) < num_tiles(TILE_SIZES[0]) else TILE_SIZES[0]
    if model.hidden_channels > 32 or model.norm is not None or model.residual:
        return tile_size(largest)
    tiles = {size: num_tiles(size) for size in fitting}
    if tiles[fitting[0]] <= device_gpu.num_multiprocessors:  # at most one tile each: more warps are better
        return fitting[0] if fitting[0] <= TILE_SIZES[0] else TILE_SIZES[1]
    if tiles.get(TILE_SIZES[0], math.inf) <= FEW_TILES * device_gpu.num_multiprocessors:  # so few tiles are fastest at this size
        return TILE_SIZES[0]
    return min(tiles, key=lambda size: time_of_tiles(tiles[size], size, device_gpu, precision))


def _is_plain_gcn(model: ModelConfig) -> bool:
    return is_plain_gcn(model.name, model.feed_forward, model.encodings.rwse, model.pool, model.readout, model.activation)
