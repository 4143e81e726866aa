"""A drop-in for `torch_geometric.nn.GCNConv` that computes by this project's operator where it can."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import GCNConv, MessagePassing
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.nn.dense.linear import Linear

from molgcn.ops.gcn_conv import DTYPES, ConvInputs, available, gcn_conv
from molgcn.ops.transforms import transformed

_MESSAGE_PASSING = ("message", "message_and_aggregate", "aggregate", "update", "edge_update")
_STEPS = ("propagate", "message", "aggregate", "message_and_aggregate")
_HOOKS = tuple(f"_{step}_forward{kind}_hooks" for step in _STEPS for kind in ("", "_pre"))
_LINEAR_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_hooks", "_backward_pre_hooks")


class FusedGCNConv(GCNConv):
    r"""PyG's `GCNConv` as one fused operator, forward and backward.

    It is the graph convolution of `"Semi-supervised Classification with Graph Convolutional Networks"
    <https://arxiv.org/abs/1609.02907>`_:

    .. math::
        X' = \hat A X W^T + b, \qquad \hat A = D^{-1/2} (A + I) D^{-1/2}

    Constructor, forward signature, state-dict keys, initialisation and `repr` are those of :class:`torch_geometric.nn.GCNConv`, and so
    are the numbers, with these exceptions:

    - `improved=True` gives :math:`A + 2I` as PyG documents it, also without `edge_weight`, where PyG (2.7, 2.8) computes :math:`A + I`.
    - Of several self-loops at one node the last one counts, as in PyG, and only its weight has a gradient. PyG gives all of them the
      same gradient.
    - With `edge_weight`, `normalize` and no self-loops, PyG's gradient of `edge_weight` is NaN where a node has no incoming edge. Here
      it is finite.

    A node without edges whose features are NaN keeps them to itself, as in PyG: the outputs of other nodes stay finite, and the gradient
    of the weight is NaN. Existing self-loops are not doubled.

    The edges may be in any order. They are sorted when a tensor `edge_index` is first seen, and the result serves all layers and epochs
    that are given the same tensor, until it is freed or written to through PyTorch (writing through NumPy or `.data` goes unnoticed). It
    takes 20 bytes an edge, and 8 more for float32 weights of the entries, 16 for float64.

    What is computed by the operator: dense float32 or float64 `x` [N, F] with int64 `edge_index` [2, E] and sum aggregation, on the CPU
    where the C++ extension was built. Everything else (sparse matrices, static graphs [B, N, F], other aggregations, autocast, hooks on
    messages, explanations, `decomposed_layers`, `torch.func`, other devices) takes PyG's own path, and so does `torch.jit.script`.

    Args:
        in_channels: F, or -1 to take it from the first input.
        out_channels: C.
        improved: self-loops weigh 2.
        cached: keep the normalised graph of the first call, as PyG.
        add_self_loops: as PyG; default: `normalize`.
        normalize: symmetric normalisation.
        bias: learn a bias.
        **kwargs: of `torch_geometric.nn.MessagePassing`.

    Shapes:
        - **x:** [N, F]; **edge_index:** [2, E] or a sparse matrix [N, N]; **edge_weight:** [E], optional
        - **output:** [N, C]
    """

    _own_messages = False
    _cached_edge_index: Any
    # PyG takes a class's `propagate` as the general one when the class is first used; an inherited one may be GCNConv's specialised form
    # by then, which sees no explanation's mask.
    propagate = MessagePassing.propagate

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = "propagate" in vars(cls)
        if not own:
            cls.propagate = MessagePassing.propagate
        cls._own_messages = own or any(getattr(cls, name) is not getattr(GCNConv, name) for name in _MESSAGE_PASSING)

    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """Node features [N, C].

        Raises:
            IndexError: for an edge whose node `x` does not have.
        """
        if self.improved and self.normalize and edge_weight is None and _is_edge_list(edge_index):
            edge_weight = x.new_ones(edge_index.shape[1])
        if not self.is_fused(x, edge_index, edge_weight):
            return super().forward(x, edge_index, edge_weight)
        normalize, add_self_loops = self.normalize, self.add_self_loops
        if self.cached and normalize:
            if self._cached_edge_index is None:
                self._cached_edge_index = gcn_norm(edge_index, edge_weight, x.shape[0], self.improved, add_self_loops, self.flow, x.dtype)
            edge_index, edge_weight = self._cached_edge_index
            normalize = add_self_loops = False
        return gcn_conv(
            ConvInputs(
                x,
                self.lin.weight,
                self.bias,
                edge_index,
                edge_weight,
                normalize,
                add_self_loops,
                2.0 if self.improved else 1.0,
                self.flow == "target_to_source",
            )
        )

    def is_fused(self, x: Any, edge_index: Any, edge_weight: Any = None) -> bool:
        """Whether a call with these arguments is computed by the operator; else PyG computes it."""
        if not (isinstance(x, Tensor) and _is_edge_list(edge_index) and edge_index.dtype == torch.int64):
            return False
        weight, device = self.lin.weight, x.device
        if not available(device.type) or torch.is_autocast_enabled(device.type) or transformed():
            return False
        if x.dim() != 2 or x.layout != torch.strided or x.dtype not in DTYPES or edge_index.device != device:
            return False
        if edge_weight is not None and (edge_weight.shape != edge_index.shape[1:] or edge_weight.dtype != x.dtype):
            return False
        if self.cached and self.normalize and self._cached_edge_index is not None:
            indices, weights = self._cached_edge_index
            if not _is_edge_list(indices) or weights is None or weights.dtype != x.dtype or weights.device != device:
                return False
        return self._is_plain() and weight.dtype == x.dtype and weight.device == device and weight.shape[1] == x.shape[1]

    def _is_plain(self) -> bool:
        """Whether nothing wants to see or change what happens between PyG's steps."""
        return not (
            self._own_messages
            or self.aggr not in ("add", "sum")
            or self.node_dim not in (-2, 0)
            or self.decomposed_layers != 1
            or self._explain
            or type(self.lin) is not Linear
            or self.lin.bias is not None
            or any(map(vars(self.lin).get, _LINEAR_HOOKS))
            or any(map(vars(self).get, _HOOKS))
        )

    def __repr__(self) -> str:
        return f"GCNConv({self.in_channels}, {self.out_channels})"

    def __prepare_scriptable__(self) -> GCNConv:
        twin = GCNConv(self.in_channels, self.out_channels)  # makes the class's own scriptable methods
        vars(twin).update(copy.copy(vars(self)))
        return twin


def _is_edge_list(edge_index: Any) -> bool:
    return isinstance(edge_index, Tensor) and edge_index.layout == torch.strided and edge_index.dim() == 2 and edge_index.shape[0] == 2
