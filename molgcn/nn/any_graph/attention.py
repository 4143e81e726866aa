"""Drop-ins for `torch_geometric.nn.GATConv` and `GATv2Conv` that compute by this project's operator where they can."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.nn import GATConv, GATv2Conv

from molgcn.nn.any_graph.base import AnyGraphConv, why_not_graph, why_not_rows, wide
from molgcn.ops.aggregate import aggregate
from molgcn.ops.attention import AttentionInputs, attention
from molgcn.ops.philox import dropout_seed
from molgcn.ops.precision import without_autocast

_FILLS = ("mean", "add", "sum")


class AttentionConv(AnyGraphConv):
    """Base of the fused attention layers."""

    def _why_not_inputs(
        self, x: Any, edge_index: Any, edge_attr: Any = None, size: Any = None, return_attention_weights: Any = None
    ) -> str | None:
        if return_attention_weights is not None:
            return "the attention weights are to be returned"
        if reason := why_not_graph(x, edge_index):
            return reason
        pair = not isinstance(x, Tensor)
        if self.flow == "target_to_source" and (pair or not isinstance(self.in_channels, int)):
            return "sources and targets differ, and flow is target_to_source"
        sources, targets = (x[0].shape[0], x[1].shape[0]) if pair else (x.shape[0], x.shape[0])
        if size is not None and tuple(size) != (sources, targets):
            return "size is not that of x"
        if edge_attr is None:
            return None
        if edge_attr.dim() == 1:
            edge_attr = edge_attr.view(-1, 1)
        if reason := why_not_rows("edge_attr", edge_attr, edge_index.device):
            return reason
        if edge_attr.shape[0] != edge_index.shape[1]:
            return "edge_attr has not a row an edge"
        if self.add_self_loops and isinstance(self.fill_value, str) and (self.fill_value not in _FILLS or targets > sources):
            return f"fill_value is {self.fill_value!r}" + " with more targets than sources" * (self.fill_value in _FILLS)
        return None

    def _num_loops(self, num_sources: int, num_targets: int) -> int:
        return min(num_sources, num_targets) if self.add_self_loops else 0

    def _attributes(self, edge_attr: Tensor, edge_index: Tensor, num_sources: int, num_loops: int) -> Tensor:
        """Return the edges' attributes [E + num_loops, D], with those of the added self-loops as PyG fills them in."""
        if edge_attr.dim() == 1:
            edge_attr = edge_attr.view(-1, 1)
        if num_loops == 0:
            return edge_attr
        fill = self.fill_value
        if isinstance(fill, str):
            loops = _filled(edge_attr, edge_index, num_sources, num_loops, fill == "mean")
        elif isinstance(fill, Tensor):
            loops = fill.to(edge_attr).expand(num_loops, edge_attr.shape[1])
        else:
            loops = edge_attr.new_full((num_loops, edge_attr.shape[1]), 1.0 if fill is None else fill)
        return torch.cat([edge_attr, loops])

    def _attended(
        self, x: Any, edge_index: Tensor, rows: tuple[Tensor, Tensor | None, Tensor | None, Tensor | None], num_targets: int, num_loops: int
    ) -> Tensor:
        """Return the output of the attention, with the heads side by side or averaged, residual and bias.

        `rows` are those of sources, targets and edges, and the attention vectors, as :class:`AttentionInputs` takes them.
        """
        dropout = float(self.dropout) if self.training else 0.0
        seed = dropout_seed(edge_index.device) if dropout > 0 else None
        sizes = (num_targets, self.heads, self.out_channels, num_loops)
        options = self.flow == "target_to_source", self.negative_slope, dropout
        out = attention(AttentionInputs(*rows, edge_index, seed, *sizes, *options))
        if not self.concat:
            out = out.view(-1, self.heads, self.out_channels).mean(dim=1)
        if self.res is not None:
            out = out + self.res(x if isinstance(x, Tensor) else x[1])
        return out if self.bias is None else out + self.bias


class FusedGATConv(AttentionConv, GATConv):
    r"""PyG's `GATConv` with scores, softmax, dropout and weighted sum as one operator, forward and backward.

    It is the layer of `"Graph Attention Networks" <https://arxiv.org/abs/1710.10903>`_:

    .. math::
        x'_i = \sum_{j \in N(i) \cup \{i\}} \alpha_{ij} W_s x_j, \qquad
        \alpha_{i \cdot} = \mathrm{softmax}_j \left( \mathrm{leaky} \left( a_s^T W_s x_j + a_t^T W_t x_i + a_e^T W_e e_{ij} \right) \right)

    Constructor, forward signature, state-dict keys, initialisation and `repr` are those of :class:`torch_geometric.nn.GATConv`, and so
    are the results. For the same seed dropout drops other weights than PyG's, at the same rate. No tensor of size E x H x C is made.

    Dense float32 or float64 `x` with int64 `edge_index` [2, E] is accelerated, on CPU and CUDA, under autocast too. For the rest
    (sparse matrices, `return_attention_weights`, `torch.func`, hooks, explanations, other fills of self-loops than numbers, tensors, "mean"
    and "add") the layer takes PyG's own path, and :meth:`why_not` says why.

    Args:
        in_channels: F, or a pair with the widths of sources and targets; -1 takes a width from the first input.
        out_channels: C.
        heads: H.
        concat: put the heads side by side; otherwise take their mean.
        negative_slope: slope of the leaky relu below zero.
        dropout: probability that an attention weight is dropped in training.
        add_self_loops: let every node attend to itself.
        edge_dim: D, width of `edge_attr`.
        fill_value: attributes of added self-loops, as in PyG.
        bias: learn a bias.
        residual: add a linear map of the targets' features.
        **kwargs: arguments of `torch_geometric.nn.MessagePassing`.

    Shapes:
        - **x:** [N, F], or [M, F_s] of sources and [N, F_t] of targets; **edge_index:** [2, E]; **edge_attr:** [E, D], optional
        - **output:** [N, H * C], or [N, C] without `concat`
    """

    original = GATConv
    merged = ("lin", "lin_src", "lin_dst", "lin_edge")

    def forward(
        self, x: Any, edge_index: Any, edge_attr: Tensor | None = None, size: Any = None, return_attention_weights: bool | None = None
    ) -> Any:
        """Return the new node features, with the arguments and results of PyG's `GATConv`. The class's docstring has the shapes.

        Raises:
            IndexError: for an edge to or from a node that `x` does not have.
        """
        if self.why_not(x, edge_index, edge_attr, size, return_attention_weights) is not None:
            return super().forward(x, edge_index, edge_attr, size, return_attention_weights)
        if isinstance(x, Tensor) and self.lin is not None:
            weight, targets, num_targets = self.lin.weight, None, x.shape[0]
            source = wide(_merged_linear(x, weight, _folded(weight, self.att_src), _folded(weight, self.att_dst)))
        else:
            x_source, x_target = (x, x) if isinstance(x, Tensor) else x
            lin_source, lin_target = (self.lin_src, self.lin_dst) if self.lin is None else (self.lin, self.lin)
            source = wide(_merged_linear(x_source, lin_source.weight, _folded(lin_source.weight, self.att_src)))
            targets = wide(F.linear(x_target, _folded(lin_target.weight, self.att_dst)))
            num_targets = x_target.shape[0]
        num_loops = self._num_loops(source.shape[0], num_targets)
        edges = None
        if edge_attr is not None and self.lin_edge is not None:
            attributes = self._attributes(edge_attr, edge_index, source.shape[0], num_loops)
            edges = wide(F.linear(attributes, _folded(self.lin_edge.weight, self.att_edge)))
        return self._attended(x, edge_index, (source, targets, edges, None), num_targets, num_loops)


class FusedGATv2Conv(AttentionConv, GATv2Conv):
    r"""PyG's `GATv2Conv` with scores, softmax, dropout and weighted sum as one operator, forward and backward.

    It is the layer of `"How Attentive are Graph Attention Networks?" <https://arxiv.org/abs/2105.14491>`_:

    .. math::
        x'_i = \sum_{j \in N(i) \cup \{i\}} \alpha_{ij} W_l x_j, \qquad
        \alpha_{i \cdot} = \mathrm{softmax}_j \left( a^T \mathrm{leaky} \left( W_l x_j + W_r x_i + W_e e_{ij} \right) \right)

    Constructor, forward signature, state-dict keys, initialisation and `repr` are those of :class:`torch_geometric.nn.GATv2Conv`, and so
    are the results. For the same seed dropout drops other weights than PyG's, at the same rate. The only tensors of size E x H x C are
    :math:`W_e e_{ij}`, where there are edge attributes, and its gradient.

    The same inputs are accelerated, and the same ones take PyG's own path, as in :class:`molgcn.nn.FusedGATConv`.

    Args:
        in_channels: F, or a pair with the widths of sources and targets; -1 takes a width from the first input.
        out_channels: C.
        heads: H.
        concat: put the heads side by side; otherwise take their mean.
        negative_slope: slope of the leaky relu below zero.
        dropout: probability that an attention weight is dropped in training.
        add_self_loops: let every node attend to itself.
        edge_dim: D, width of `edge_attr`.
        fill_value: attributes of added self-loops, as in PyG.
        bias: learn biases.
        share_weights: use one matrix for both maps, :math:`W_r = W_l`.
        residual: add a linear map of the targets' features.
        **kwargs: arguments of `torch_geometric.nn.MessagePassing`.

    Shapes:
        - **x:** [N, F], or [M, F_s] of sources and [N, F_t] of targets; **edge_index:** [2, E]; **edge_attr:** [E, D], optional
        - **output:** [N, H * C], or [N, C] without `concat`
    """

    original = GATv2Conv

    def forward(self, x: Any, edge_index: Any, edge_attr: Tensor | None = None, return_attention_weights: bool | None = None) -> Any:
        """Return the new node features; the shapes are in the class's docstring.

        Raises:
            IndexError: for an edge to or from a node that `x` does not have.
        """
        if self.why_not(x, edge_index, edge_attr, return_attention_weights=return_attention_weights) is not None:
            return super().forward(x, edge_index, edge_attr, return_attention_weights)
        x_source, x_target = (x, x) if isinstance(x, Tensor) else x
        source = targets = wide(self.lin_l(x_source))
        if x_target is not x_source or not self.share_weights:
            targets = wide(self.lin_r(x_target))
        num_targets = targets.shape[0]
        num_loops = self._num_loops(source.shape[0], num_targets)
        edges = None
        if edge_attr is not None:
            edges = wide(self.lin_edge(self._attributes(edge_attr, edge_index, source.shape[0], num_loops)))
        return self._attended(x, edge_index, (source, targets, edges, self.att[0]), num_targets, num_loops)

    def _why_not_inputs(  # type: ignore[override]  # GATv2Conv takes no size
        self, x: Any, edge_index: Any, edge_attr: Any = None, return_attention_weights: Any = None
    ) -> str | None:
        if edge_attr is not None and self.lin_edge is None:
            return "edge_attr is given to a layer without edge_dim"
        return super()._why_not_inputs(x, edge_index, edge_attr, None, return_attention_weights)


def _folded(weight: Tensor, att: Tensor) -> Tensor:
    """Return the weights [H, F] that give the scores att . (W x) of each head directly from x, for W [H * C, F] and att [1, H, C]."""
    _, heads, channels = att.shape
    with without_autocast(weight.device.type):
        return torch.bmm(att.view(heads, 1, channels), weight.view(heads, channels, -1)).squeeze(1)


def _merged_linear(x: Tensor, *weights: Tensor) -> Tensor:
    """Return x times all weights side by side, padded with columns of zeros so that every row is aligned for vector loads."""
    spare = -sum(weight.shape[0] for weight in weights) % 4
    zeros = [weights[0].new_zeros(spare, x.shape[1])] if spare else []
    return F.linear(x, torch.cat([*weights, *zeros]))


def _filled(edge_attr: Tensor, edge_index: Tensor, num_sources: int, num_loops: int, mean: bool) -> Tensor:
    """Return the sum or mean of the attributes of each node's incoming edges, self-loops left out."""
    counted = (edge_index[0] != edge_index[1]).to(edge_attr)[:, None]
    rows = torch.cat([edge_attr * counted, counted], dim=1)
    sums = aggregate(rows.new_ones(num_sources, rows.shape[1]), edge_index, rows, num_nodes=num_loops)
    return sums[:, :-1] / sums[:, -1:].clamp(min=1) if mean else sums[:, :-1]
