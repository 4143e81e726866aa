"""A drop-in for `torch_geometric.nn.GATConv` that computes by this project's operator where it can."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import functional as F
from torch_geometric.nn import GATConv

from molgcn.nn.any_graph.attention import AttentionConv, folded, merged_linear
from molgcn.nn.any_graph.base import wide
from molgcn.ops.attention import AttentionInputs, attention


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
        reverse = self.flow == "target_to_source"
        if isinstance(x, Tensor) and self.lin is not None:
            weight, targets, num_targets = self.lin.weight, None, x.shape[0]
            source = wide(merged_linear(x, weight, folded(weight, self.att_src), folded(weight, self.att_dst)))
        else:
            x_source, x_target = (x, x) if isinstance(x, Tensor) else x
            lin_source, lin_target = (self.lin_src, self.lin_dst) if self.lin is None else (self.lin, self.lin)
            source = wide(merged_linear(x_source, lin_source.weight, folded(lin_source.weight, self.att_src)))
            targets = wide(F.linear(x_target, folded(lin_target.weight, self.att_dst)))
            num_targets = x_target.shape[0]
        num_loops = self._num_loops(source.shape[0], num_targets)
        edges = None
        if edge_attr is not None and self.lin_edge is not None:
            attributes = self._attributes(edge_attr, edge_index, source.shape[0], num_loops)
            edges = wide(F.linear(attributes, folded(self.lin_edge.weight, self.att_edge)))
        seed, dropout = self._drop(source.device)
        sizes = (num_targets, self.heads, self.out_channels, num_loops)
        inputs = AttentionInputs(source, targets, edges, None, edge_index, seed, *sizes, reverse, self.negative_slope, dropout)
        return self._finished(attention(inputs), x)
