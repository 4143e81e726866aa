r"""Multiply rows by :math:`\hat A`, the weighted sum over the neighbours, by `cuda/gcn_adjacency.cu`."""

from __future__ import annotations

import torch
from torch import Tensor

from molgcn.cuda_runtime.launch import gpu, kernel
from molgcn.cuda_runtime.structs import Header, fill
from molgcn.ops.graph import Graph

_THREADS = 256
_HEADER = Header(
    "gcn_adjacency_structs.h",
    Parameters=[
        ("const int*", "ptr rowptr col"),
        ("real*", "scale"),  # [N]: D^-1/2
        ("const real*", "rows"),  # [N, columns]
        ("real*", "sums"),  # [N, columns]
        ("int", "num_graphs num_nodes num_columns"),
    ],
)


class Aggregation:
    r"""The :math:`\hat A` of a batch, as a function that multiplies rows by it.

    Args:
        graph: The batch, which gives the bonds and the dtype.
        add_self_loops: Whether the identity is added to the adjacency.
    """

    def __init__(self, graph: Graph, add_self_loops: bool) -> None:
        x, num_nodes = graph.x, graph.num_nodes
        self._defines = {"DOUBLE": int(x.dtype == torch.float64), "SELF_LOOPS": int(add_self_loops)}
        self._tensors = {"ptr": graph.ptr, "rowptr": graph.rowptr, "col": graph.col, "scale": x.new_empty(num_nodes)}
        self._arguments = fill(_HEADER.ctype()(num_graphs=graph.num_graphs, num_nodes=num_nodes), self._tensors)
        self._launch("aggregate_prepare", num_nodes)

    def __call__(self, rows: Tensor) -> Tensor:
        r"""Return :math:`\hat A` times rows [N, columns]. Rows beyond the last atom of a padded batch become zero."""
        rows = rows.contiguous()
        sums = torch.empty_like(rows)
        fill(self._arguments, {"rows": rows, "sums": sums, "num_columns": rows.shape[1]})
        self._launch("aggregate", rows.numel())
        return sums

    def _launch(self, name: str, work: int) -> None:
        device = self._tensors["scale"].device
        grid = max(1, min(-(-work // _THREADS), 8 * gpu(device).num_multiprocessors))
        kernel("gcn_adjacency.cu", name, self._defines, device).launch(grid, _THREADS, 0, self._arguments)
