"""What the places of a slot read as that hold no atom or bond of the batch: static in shape and found without waiting for the device.

Atoms beyond those in use belong to molecule B, one past the last of the slot's B places for molecules: pooling makes a row too many and
drops it. Bonds beyond those in use connect the slot's last atom with itself, which is not in use itself
(:attr:`molgcn.data.layout.BatchLayout.padding_atom`). So they reach no real atom, and layers need not know of them.
"""

from __future__ import annotations

import torch
from torch import Tensor


def padded_edge_index(rowptr: Tensor, col: Tensor) -> Tensor:
    """Return source and target of every bond, int64 [2, E]; arguments as in :class:`molgcn.data.GraphBatch`."""
    last, bonds = len(rowptr) - 2, torch.arange(len(col), dtype=rowptr.dtype, device=rowptr.device)
    source = torch.where(bonds < rowptr[-1], col, last).long()
    target = (torch.searchsorted(rowptr, bonds, right=True) - 1).clamp(max=last)
    return torch.stack([source, target])


def padded_batch(ptr: Tensor, num_nodes: int) -> Tensor:
    """Return the molecule of every atom, int64 [num_nodes]."""
    return torch.searchsorted(ptr, torch.arange(num_nodes, dtype=ptr.dtype, device=ptr.device), right=True) - 1
