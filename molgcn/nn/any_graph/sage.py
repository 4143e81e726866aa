"""A drop-in for `torch_geometric.nn.SAGEConv` that computes by this project's operator where it can."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.nn import SAGEConv

from molgcn.nn.any_graph.neighbours import NeighbourConv


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
