"""Drop-ins for PyG's `GINConv`, `GINEConv` and `SAGEConv` that compute by this project's operators where they can."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.nn import GINConv, GINEConv, SAGEConv

from molgcn.nn.any_graph.base import DTYPES, AnyGraphConv, why_not_graph, why_not_rows, wide
from molgcn.ops.aggregate import aggregate
from molgcn.ops.gine import GineInputs, gine_aggregate


class NeighbourConv(AnyGraphConv):
    """Base of the fused layers that reduce messages from the neighbours."""

    aggregations: ClassVar[tuple[str, ...]] = ("add", "sum", "mean", "max")

    def _why_not_inputs(self, x: Any, edge_index: Any, size: Any = None) -> str | None:
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


class FusedGINConv(NeighbourConv, GINConv):
    r"""PyG's `GINConv` with the sum over the neighbours as one operator, which makes no tensor of the size of the edges.

    It is the graph isomorphism layer of `"How Powerful are Graph Neural Networks?" <https://arxiv.org/abs/1810.00826>`_:

    .. math::
        x'_i = h \left( (1 + \epsilon) x_i + \sum_{j \in N(i)} x_j \right)

    Constructor, forward signature, state-dict keys, initialisation and `repr` are those of :class:`torch_geometric.nn.GINConv`, and so
    are the results, for `aggr` "add", "mean" and "max" alike. Equal largest neighbours share the gradient of "max" equally.

    Dense float32 or float64 `x` with int64 `edge_index` [2, E] is accelerated, on CPU and CUDA, under autocast too. For the rest
    (sparse matrices, other aggregations, `torch.func`, hooks on messages, explanations) the layer takes PyG's own path, and
    :meth:`why_not` says why.

    Args:
        nn: the module h.
        eps: initial :math:`\epsilon`.
        train_eps: learn :math:`\epsilon`.
        **kwargs: arguments of `torch_geometric.nn.MessagePassing`.

    Shapes:
        - **x:** [N, F], or [M, F] of sources and [N, F] of targets; **edge_index:** [2, E]
        - **output:** the result of h on [N, F]
    """

    original = GINConv
    smallest = (torch.nn.Identity(),)

    def forward(self, x: Any, edge_index: Any, size: Any = None) -> Tensor:
        """Return the new node features; the shapes are in the class's docstring.

        Raises:
            IndexError: for an edge to or from a node that `x` does not have.
        """
        if self.why_not(x, edge_index, size) is not None:
            return super().forward(x, edge_index, size)
        factor = 1 + self.eps
        if isinstance(x, Tensor) and self.aggr != "max" and x.dtype in DTYPES:
            return self.nn(self._aggregated(x, edge_index, x.shape[0], factor))
        sources, targets = (x, x) if isinstance(x, Tensor) else x
        return self.nn(torch.addcmul(self._aggregated(sources, edge_index, targets.shape[0]), targets, factor))


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

    def _why_not_inputs(  # type: ignore[override]  # GINEConv takes edge_attr before size
        self, x: Any, edge_index: Any, edge_attr: Any = None, size: Any = None
    ) -> str | None:
        if reason := super()._why_not_inputs(x, edge_index, size):
            return reason
        if not isinstance(edge_attr, Tensor):
            return "edge_attr is missing"
        if reason := why_not_rows("edge_attr", edge_attr, edge_index.device):
            return reason
        sources = x if isinstance(x, Tensor) else x[0]
        if edge_attr.shape[0] != edge_index.shape[1] or (self.lin is None and edge_attr.shape[1] != sources.shape[1]):
            return "edge_attr has not a row an edge as wide as x"
        return None if wide(sources[:0]).dtype == wide(edge_attr[:0]).dtype else f"x is {sources.dtype} and edge_attr {edge_attr.dtype}"


class FusedSAGEConv(NeighbourConv, SAGEConv):
    r"""PyG's `SAGEConv` with the mean over the neighbours as one operator, which makes no tensor of the size of the edges.

    It is the layer of `"Inductive Representation Learning on Large Graphs" <https://arxiv.org/abs/1706.02216>`_:

    .. math::
        x'_i = W_r x_i + W_l \cdot \mathrm{mean}_{j \in N(i)} x_j + b

    Constructor, forward signature, state-dict keys, initialisation and `repr` are those of :class:`torch_geometric.nn.SAGEConv`, and so
    are the results, for `aggr` "mean", "add" and "max" alike. Equal largest neighbours share the gradient of "max" equally.

    The same inputs are accelerated, and the same ones take PyG's own path, as in :class:`molgcn.nn.FusedGINConv`.

    Args:
        in_channels: F, or a pair with the widths of sources and targets; -1 takes a width from the first input.
        out_channels: C.
        aggr: "mean", "add" or "max"; other aggregations take PyG's path.
        normalize: scale every output row to length 1.
        root_weight: add :math:`W_r x_i`.
        project: pass the sources through a linear map and relu first.
        bias: learn a bias.
        **kwargs: arguments of `torch_geometric.nn.MessagePassing`.

    Shapes:
        - **x:** [N, F], or [M, F_s] of sources and [N, F_t] of targets; **edge_index:** [2, E]
        - **output:** [N, C]
    """

    original = SAGEConv
    merged = ("lin_r",)

    def forward(self, x: Any, edge_index: Any, size: Any = None) -> Tensor:
        """Return the new node features; the shapes are in the class's docstring.

        Raises:
            IndexError: for an edge to or from a node that `x` does not have.
        """
        if self.why_not(x, edge_index, size) is not None:
            return super().forward(x, edge_index, size)
        sources, targets = (x, x) if isinstance(x, Tensor) else x
        if self.project:
            sources = self.lin(sources).relu()
        out = self.lin_l(self._aggregated(sources, edge_index, targets.shape[0]))
        if self.root_weight:
            out = torch.addmm(out, targets, self.lin_r.weight.T)
        return F.normalize(out, p=2.0, dim=-1) if self.normalize else out
