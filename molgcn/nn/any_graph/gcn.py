"""A drop-in for `torch_geometric.nn.GCNConv` that computes by this project's operator where it can."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import GCNConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from molgcn.nn.any_graph.base import AnyGraphConv, why_not_graph, wide
from molgcn.ops.gcn_conv import ConvInputs, gcn_conv


class FusedGCNConv(AnyGraphConv, GCNConv):
    r"""PyG's `GCNConv` as one fused operator, forward and backward.

    It is the graph convolution of `"Semi-supervised Classification with Graph Convolutional Networks"
    <https://arxiv.org/abs/1609.02907>`_:

    .. math::
        X' = \hat A X W^T + b, \qquad \hat A = D^{-1/2} (A + I) D^{-1/2}

    Constructor, forward signature, state-dict keys, initialisation and `repr` are those of :class:`torch_geometric.nn.GCNConv`, and so
    are the results, with these exceptions:

    - `improved=True` gives :math:`A + 2I` as PyG documents it. PyG (2.7, 2.8) computes :math:`A + I` without `edge_weight`.
    - If a node has several self-loops, the last one counts, as in PyG, and only its weight has a gradient. PyG gives all of them the
      same gradient.
    - With `edge_weight`, `normalize` and no self-loops, PyG's gradient of `edge_weight` is NaN where a node has no incoming edge. Here
      it is finite.

    If a node without edges has NaN features, the outputs of other nodes stay finite and the gradient of the weight is NaN, as in PyG.
    Existing self-loops are not doubled.

    The edges may be in any order. They are sorted when a tensor `edge_index` is first seen. The sorted edges serve all layers and epochs
    that are given the same tensor, until it is freed or written to through PyTorch. Writing through NumPy or `.data` goes unnoticed. The
    sorted edges take memory. On a CPU it is 20 bytes per edge, plus 8 for float32 edge weights or 16 for float64. On CUDA it is 41
    bytes per edge and self-loop in float32 without `edge_weight`.

    Dense float32 or float64 `x` [N, F] with int64 `edge_index` [2, E] and sum aggregation is accelerated, on CPU and CUDA, under autocast
    too. Everything else (sparse matrices, static graphs [B, N, F], other aggregations, hooks on messages, explanations,
    `decomposed_layers`, `torch.func`, other devices) takes PyG's own path, and so does `torch.jit.script`; :meth:`why_not` says why.

    Args:
        in_channels: F, or -1 to take it from the first input.
        out_channels: C.
        improved: give added self-loops the weight 2.
        cached: keep the normalised graph of the first call, as in PyG.
        add_self_loops: add self-loops, as in PyG. The default is the value of `normalize`.
        normalize: normalise the adjacency by the degrees of both ends.
        bias: learn a bias.
        **kwargs: arguments of `torch_geometric.nn.MessagePassing`.

    Shapes:
        - **x:** [N, F]; **edge_index:** [2, E] or a sparse matrix [N, N]; **edge_weight:** [E], optional
        - **output:** [N, C]
    """

    original = GCNConv
    merged = ("lin",)
    _cached_edge_index: Any

    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """Return the new node features [N, C].

        Raises:
            IndexError: for an edge to or from a node that `x` does not have.
        """
        if self.improved and self.normalize and edge_weight is None and _is_edge_list(edge_index):
            edge_weight = x.new_ones(edge_index.shape[1])
        if self.why_not(x, edge_index, edge_weight) is not None:
            return super().forward(x, edge_index, edge_weight)
        normalize, add_self_loops = self.normalize, self.add_self_loops
        if self.cached and normalize:
            if self._cached_edge_index is None:
                self._cached_edge_index = gcn_norm(edge_index, edge_weight, x.shape[0], self.improved, add_self_loops, self.flow, x.dtype)
            edge_index, edge_weight = self._cached_edge_index
            normalize = add_self_loops = False
        linear = self.lin
        weight: Tensor | None = linear.weight
        if torch.is_autocast_enabled(x.device.type):
            x, weight = wide(linear(x)), None
        options = (normalize, add_self_loops, 2.0 if self.improved else 1.0, self.flow == "target_to_source")
        return gcn_conv(ConvInputs(x, weight, self.bias, edge_index, edge_weight, *options))

    def _why_not_inputs(self, x: Any, edge_index: Any, edge_weight: Any = None) -> str | None:
        if not isinstance(x, Tensor):
            return "x is not one tensor"
        if reason := why_not_graph(x, edge_index):
            return reason
        weight, device = self.lin.weight, x.device
        if edge_weight is not None:
            if edge_weight.shape != edge_index.shape[1:] or edge_weight.device != device:
                return "edge_weight has not a number an edge on the device of x"
            if edge_weight.dtype != (wide(x).dtype):
                return f"edge_weight is {edge_weight.dtype} and x {x.dtype}"
        if self.cached and self.normalize and self._cached_edge_index is not None:
            indices, weights = self._cached_edge_index
            if not _is_edge_list(indices) or weights is None or weights.dtype != wide(x).dtype or weights.device != device:
                return "the cached graph is a sparse matrix, or of another dtype or device"
        if torch.is_autocast_enabled(device.type):
            return None
        if weight.dtype != x.dtype or weight.device != device or weight.shape[1] != x.shape[1]:
            return f"the weight is {weight.dtype} {list(weight.shape)} on {weight.device}, and x {x.dtype} {list(x.shape)} on {device}"
        return None


def _is_edge_list(edge_index: Any) -> bool:
    return isinstance(edge_index, Tensor) and edge_index.layout == torch.strided and edge_index.dim() == 2 and edge_index.shape[0] == 2
