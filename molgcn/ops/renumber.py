"""Renumber the nodes of a graph so that neighbours have close numbers."""

from __future__ import annotations

import torch
from torch import Tensor


def renumber(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Return the nodes in SciPy's reverse Cuthill-McKee order, in which neighbours have close numbers.

    Features that are close together are in the cache together. This can make aggregation faster on large graphs whose nodes are in no
    particular order. It helps meshes and other graphs with locality, but not random graphs or batches of molecules (table "Renumbering" of
    benchmarks/any_graph.py). Node `order[i]` becomes node i::

        order = renumber(edge_index, num_nodes)
        index = torch.empty_like(order).scatter_(0, order, torch.arange(num_nodes))
        x, edge_index = x[order], index[edge_index]

    Args:
        edge_index: The source and target of every edge, int64 [2, E]. Directions and duplicates do not matter.
        num_nodes: The number of nodes, N.

    Returns:
        Every node once, int64 [N] on the device of `edge_index`.

    Raises:
        IndexError: If an edge names a node outside 0 .. N - 1. The message names the node.
        UserError: If there are more nodes or edges than 32 bits can count, or if a CUDA graph is being captured.
    """
    import numpy as np
    from scipy.sparse import coo_array, csr_matrix
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    from molgcn.ops.edge_graph import check_edges

    check_edges(edge_index, num_nodes, num_nodes)
    ends = edge_index.cpu().numpy().astype(np.int32)
    both = np.concatenate([ends, ends[::-1]], axis=1)
    matrix = csr_matrix(coo_array((np.ones(both.shape[1], np.bool_), tuple(both)), shape=(num_nodes, num_nodes)))
    order = reverse_cuthill_mckee(matrix, symmetric_mode=True) if num_nodes else np.empty(0)
    return torch.from_numpy(order.astype(np.int64)).to(edge_index.device)
