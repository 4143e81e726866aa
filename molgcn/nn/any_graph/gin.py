"""A drop-in for `torch_geometric.nn.GINConv` that computes by this project's operator where it can."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import GINConv

from molgcn.nn.any_graph.base import DTYPES
from molgcn.nn.any_graph.neighbours import NeighbourConv


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
