"""What GIN, GINE and SAGE share: sums, means and maxima over the neighbours."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from molgcn.nn.any_graph.base import AnyGraphConv, why_not_graph
from molgcn.ops.aggregate import aggregate


class NeighbourConv(AnyGraphConv):
    """Base of the fused layers that reduce messages from the neighbours."""

    aggregations: ClassVar[tuple[str, ...]] = ("add", "sum", "mean", "max")

    def _why_not_inputs(self, *args: Any, **kwargs: Any) -> str | None:
        return self._why_not_nodes(*args, **kwargs)

    def _why_not_nodes(self, x: Any, edge_index: Any, size: Any = None) -> str | None:
        if reason := why_not_graph(x, edge_index):
            return reason
        if isinstance(x, Tensor):
            return None if size is None or tuple(size) == (x.shape[0], x.shape[0]) else "size is not that of x"
        if self.flow == "target_to_source":
            return "sources and targets differ, and flow is target_to_source"
        return None if size is None or tuple(size) == (x[0].shape[0], x[1].shape[0]) else "size is not that of x"

    def _aggregated(self, rows: Tensor, edge_index: Tensor, num_targets: int, own_weight: Tensor | None = None) -> Tensor:
        """Return the reduction of the rows of every target's neighbours, with its own row added if that has a weight."""
        reduce, reverse = "sum" if self.aggr == "add" else str(self.aggr), self.flow == "target_to_source"
        return aggregate(rows, edge_index, None, reduce, num_nodes=num_targets, reverse=reverse, own_weight=own_weight)
