"""A drop-in for `torch_geometric.nn.GINEConv` that computes by this project's operator where it can."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch_geometric.nn import GINEConv

from molgcn.nn.any_graph.base import why_not_rows, wide
from molgcn.nn.any_graph.neighbours import NeighbourConv
from molgcn.ops.gine import GineInputs, gine_aggregate


class FusedGINEConv(NeighbourConv, GINEConv):
    r"""PyG's `GINEConv` with messages and their sums as one operator, forward and backward.

    It is the graph isomorphism layer with bonds of `"Strategies for Pre-training Graph Neural Networks"
    <https://arxiv.org/abs/1905.12265>`_:

    .. math::
        x'_i = h \left( (1 + \epsilon) x_i + \sum_{j \in N(i)} \mathrm{relu}(x_j + e_{ij}) \right)

    Constructor, forward signature, state-dict keys, initialisation and `repr` are those of :class:`torch_geometric.nn.GINEConv`, and so
    are the results. The only tensors of size E x F are `edge_attr`, after the layer's linear map if it has one, and its gradient.

    With `aggr` "add" the same inputs are accelerated as in :class:`molgcn.nn.FusedGINConv`. Everything else takes PyG's own path.

    Args:
        nn: the module h.
        eps: initial :math:`\epsilon`.
        train_eps: learn :math:`\epsilon`.
        edge_dim: D, width of `edge_attr`, which a linear map brings to width F. None means that it has width F already.
        **kwargs: arguments of `torch_geometric.nn.MessagePassing`.

    Shapes:
        - **x:** [N, F], or [M, F] of sources and [N, F] of targets; **edge_index:** [2, E]; **edge_attr:** [E, D]
        - **output:** the result of h on [N, F]
    """

    original = GINEConv
    aggregations: ClassVar[tuple[str, ...]] = ("add", "sum")
    smallest = (torch.nn.Identity(),)

    def forward(self, x: Any, edge_index: Any, edge_attr: Tensor | None = None, size: Any = None) -> Tensor:
        """Return the new node features; the shapes are in the class's docstring.

        Raises:
            IndexError: for an edge to or from a node that `x` does not have.
        """
        if self.why_not(x, edge_index, edge_attr, size) is not None:
            return super().forward(x, edge_index, edge_attr, size)
        assert edge_attr is not None
        sources, targets = (x, x) if isinstance(x, Tensor) else x
        edges = edge_attr if self.lin is None else self.lin(edge_attr)
        dtype = torch.promote_types(sources.dtype, edges.dtype)
        inputs = GineInputs(wide(sources), wide(edges), edge_index, targets.shape[0], self.flow == "target_to_source")
        return self.nn(torch.addcmul(gine_aggregate(inputs).to(dtype), targets, 1 + self.eps))

    def _why_not_inputs(self, x: Any, edge_index: Any, edge_attr: Any = None, size: Any = None) -> str | None:
        if reason := self._why_not_nodes(x, edge_index, size):
            return reason
        if not isinstance(edge_attr, Tensor):
            return "edge_attr is missing"
        if reason := why_not_rows("edge_attr", edge_attr, edge_index.device):
            return reason
        sources = x if isinstance(x, Tensor) else x[0]
        if edge_attr.shape[0] != edge_index.shape[1] or (self.lin is None and edge_attr.shape[1] != sources.shape[1]):
            return "edge_attr has not a row an edge as wide as x"
        return None if wide(sources[:0]).dtype == wide(edge_attr[:0]).dtype else f"x is {sources.dtype} and edge_attr {edge_attr.dtype}"
