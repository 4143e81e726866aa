"""An order of nodes in which neighbours lie close together."""

from __future__ import annotations

import torch
from torch import Tensor


def renumber(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Return the nodes in reverse Cuthill-McKee order (SciPy's), in which neighbours have close numbers.

    What is close together is in the cache together, so that aggregation may get faster on large graphs whose nodes come in no order. It
    pays for meshes and other graphs with locality, and does nothing for random graphs or batches of molecules (the table "Renumbering"
    of benchmarks/any_graph.py). Node `order[i]` becomes node i::

        order = renumber(edge_index, num_nodes)
        place = torch.empty_like(order).scatter_(0, order, torch.arange(num_nodes))
        x, edge_index = x[order], place[edge_index]

    Args:
        edge_index: int64 [2, E]; directions and duplicates do not matter.
        num_nodes: N.

    Returns:
        int64 [N] on the device of `edge_index`, each node once.

    Raises:
        IndexError: for a node outside 0 .. N - 1, naming it.
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
