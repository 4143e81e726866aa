"""A drop-in for `torch_geometric.nn.GATv2Conv` that computes by this project's operator where it can."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch_geometric.nn import GATv2Conv

from molgcn.nn.any_graph.attention import AttentionConv
from molgcn.nn.any_graph.base import wide
from molgcn.ops.attention import AttentionInputs, attention


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
        reverse = self.flow == "target_to_source"
        x_source, x_target = (x, x) if isinstance(x, Tensor) else x
        source = targets = wide(self.lin_l(x_source))
        if x_target is not x_source or not self.share_weights:
            targets = wide(self.lin_r(x_target))
        num_targets = targets.shape[0]
        num_loops = self._num_loops(source.shape[0], num_targets)
        edges = None
        if edge_attr is not None:
            edges = wide(self.lin_edge(self._attributes(edge_attr, edge_index, source.shape[0], num_loops)))
        seed, dropout = self._drop(source.device)
        sizes = (num_targets, self.heads, self.out_channels, num_loops)
        inputs = AttentionInputs(source, targets, edges, self.att[0], edge_index, seed, *sizes, reverse, self.negative_slope, dropout)
        return self._finished(attention(inputs), x)

    def _why_not_inputs(self, x: Any, edge_index: Any, edge_attr: Any = None, return_attention_weights: Any = None) -> str | None:
        if edge_attr is not None and self.lin_edge is None:
            return "edge_attr is given to a layer without edge_dim"
        return self._why_not_attention(x, edge_index, edge_attr, None, return_attention_weights)
