"""A slot as a graph: static in shape, and found without waiting for the device.

Bonds beyond those in use connect a padding atom with itself, which is one past the slot's N places for atoms. It and the places beyond
the atoms in use belong to a padding molecule, one past the slot's B places. So whoever reads `edge_index` or `batch` appends a row of any
finite values to what it has of the atoms, pools B + 1 molecules and drops the last. Layers then need not know of padding: nothing of it
reaches a real atom.
"""

from __future__ import annotations

import torch
from torch import Tensor


def padded_edge_index(rowptr: Tensor, col: Tensor) -> Tensor:
    """Return source and target of every bond, int64 [2, E]; arguments as in :class:`molgcn.data.GraphBatch`."""
    bonds = torch.arange(len(col), dtype=rowptr.dtype, device=rowptr.device)
    source = torch.where(bonds < rowptr[-1], col, len(rowptr) - 1).long()
    return torch.stack([source, torch.searchsorted(rowptr, bonds, right=True) - 1])


def padded_batch(ptr: Tensor, num_nodes: int) -> Tensor:
    """Return the molecule of every atom and of the padding atom, int64 [N + 1], where N is `num_nodes`."""
    return torch.searchsorted(ptr, torch.arange(num_nodes + 1, dtype=ptr.dtype, device=ptr.device), right=True) - 1
