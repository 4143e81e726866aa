"""The graph of a whole slot, whose shape is constant and which is computed without waiting for the device.

Unused bonds connect a padding atom, number N of a slot with room for N atoms, with itself. The padding atom and the unused atoms belong to
a padding molecule, number B of a slot with room for B molecules. To use `edge_index` or `batch`, append a row of any finite values to the
atoms' rows, pool B + 1 molecules and drop the last. Layers do not need to handle padding, since nothing of it reaches a real atom.
"""

from __future__ import annotations

import torch
from torch import Tensor


def padded_edge_index(rowptr: Tensor, col: Tensor) -> Tensor:
    """Return source and target of every bond of a slot, int64 [2, E]. The last entry of `rowptr` is the number of bonds in use."""
    bonds = torch.arange(len(col), dtype=rowptr.dtype, device=rowptr.device)
    source = torch.where(bonds < rowptr[-1], col, len(rowptr) - 1).long()
    return torch.stack([source, torch.searchsorted(rowptr, bonds, right=True) - 1])


def padded_batch(ptr: Tensor, num_nodes: int) -> Tensor:
    """Return the molecule of every atom of a slot with room for N atoms, and of the padding atom, int64 [N + 1]."""
    return torch.searchsorted(ptr, torch.arange(num_nodes + 1, dtype=ptr.dtype, device=ptr.device), right=True) - 1
