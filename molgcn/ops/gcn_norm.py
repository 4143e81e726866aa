"""GCN's normalised edge weights in plain PyTorch: the values of PyG's `gcn_norm`, with shapes that do not depend on values."""

from __future__ import annotations

import torch
from torch import Tensor


def gcn_norm(edge_index: Tensor, num_nodes: int, add_self_loops: bool, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the entries of D^-1/2 (A + I) D^-1/2: those of the edges, and those of the added self-loops.

    Args:
        edge_index: The source and target of every edge, int64 [2, E]. An edge that is listed several times counts each time.
        num_nodes: The number of nodes, N.
        add_self_loops: Whether I is added. Self-loops of the edge list then weigh 0, since PyG's `add_remaining_self_loops` replaces them.
        dtype: The dtype of the result.

    Returns:
        The edges' weights [E] and the added self-loops' weights [N]. The latter are 0 without `add_self_loops`.
    """
    source, target = edge_index[0], edge_index[1]
    counted = (source != target).to(dtype) if add_self_loops else torch.ones_like(source, dtype=dtype)
    added = torch.full((num_nodes,), float(add_self_loops), dtype=dtype, device=edge_index.device)
    degree = added.index_add(0, target, counted)
    scale = torch.where(degree > 0, degree.clamp(min=1.0).rsqrt(), 0.0)
    return counted * scale.index_select(0, source) * scale.index_select(0, target), added * scale * scale
