"""`gcn_edge`: the graph convolution that adds bonds to the messages, GNN+'s "GCN with edges"."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from molgcn.nn.init import GlorotLinear
from molgcn.nn.layers.base import Layer, LayerKind, LayerOptions
from molgcn.nn.layers.propagate import sum_incoming
from molgcn.ops.layer_network.steps import BONDS

if TYPE_CHECKING:
    from molgcn.ops.layer_network.builder import Builder


class GCNEdgeLayer(Layer):
    r"""The layer :math:`h_i' = \sum_j \mathrm{relu}(W h_j + e_{ij}) + b`, without normalisation and without self-loops.

    A linear map `lin_edge` brings the bonds' rows to the width `out_channels` where they have another width.

    Source: Luo, Shi and Wu, "Unlocking the Potential of Classic GNNs for Graph-level Tasks", ICML 2025, code.
    """

    def __init__(self, options: LayerOptions) -> None:
        super().__init__()
        assert options.edge_channels is not None
        width, out_channels = options.edge_channels, options.out_channels
        self.lin = GlorotLinear(options.in_channels, out_channels, bias=False)
        self.lin_edge = None if width == out_channels else nn.Linear(width, out_channels)
        self.bias = nn.Parameter(torch.zeros(out_channels))

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        """Return the atoms' new states [N, out_channels]."""
        bonds = edge_attr if self.lin_edge is None else self.lin_edge(edge_attr)
        messages = (self.lin(x).index_select(0, edge_index[0]) + bonds).relu()
        return sum_incoming(messages, edge_index[1], x.shape[0]) + self.bias


def _pyg(options: LayerOptions) -> nn.Module:
    from molgcn.nn.layers.message_passing import GCNEdgeConv

    return GCNEdgeConv(GCNEdgeLayer(options))


def steps(builder: Builder, options: LayerOptions, h: int) -> int:
    """Add the layer's steps."""
    mapped = builder.linear(h, "lin", options.out_channels, bias="")
    bonds = BONDS if options.edge_channels == options.out_channels else builder.linear(BONDS, "lin_edge", options.out_channels)
    return builder.gather(mapped, bonds=bonds, bias="bias")


KIND = LayerKind("gcn_edge", GCNEdgeLayer, _pyg, steps, bonds="always")
