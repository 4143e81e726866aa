"""`gcn`: the sum over an atom and its neighbours, normalised by the degrees of both ends, then a linear map."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from molgcn.config.layer_settings import defaults_of
from molgcn.nn.init import GlorotLinear
from molgcn.nn.layers.base import Layer, LayerKind, LayerOptions
from molgcn.nn.layers.propagate import sum_incoming
from molgcn.ops.gcn_norm import gcn_norm

if TYPE_CHECKING:
    from molgcn.ops.layer_network.builder import Builder

SETTINGS = defaults_of("add_self_loops")


class GCNLayer(Layer):
    r"""The graph convolution :math:`H' = D^{-1/2} (A + I) D^{-1/2} H W + b`, equal to PyG's `GCNConv`.

    Source: Kipf and Welling, "Semi-Supervised Classification with Graph Convolutional Networks", ICLR 2017, equation 2.
    """

    def __init__(self, options: LayerOptions) -> None:
        super().__init__()
        self.add_self_loops = options.settings_over(SETTINGS)["add_self_loops"]
        self.lin = GlorotLinear(options.in_channels, options.out_channels, bias=False)
        self.bias = nn.Parameter(torch.empty(options.out_channels))
        self.reset_parameters()

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: None = None) -> Tensor:
        """Return the atoms' new states [N, out_channels]."""
        weight, own = gcn_norm(edge_index, x.shape[0], self.add_self_loops, x.dtype)
        h = self.lin(x)
        out = sum_incoming(weight[:, None] * h.index_select(0, edge_index[0]), edge_index[1], x.shape[0])
        if self.add_self_loops:
            out = out + own[:, None] * h
        return out + self.bias


def _pyg(options: LayerOptions) -> nn.Module:
    from torch_geometric.nn import GCNConv

    return GCNConv(options.in_channels, options.out_channels, **options.settings_over(SETTINGS))


def steps(builder: Builder, options: LayerOptions, h: int) -> int:
    """Add the layer's steps. Neighbours are summed before the product, which gives the same."""
    loops = options.settings_over(SETTINGS)["add_self_loops"]
    return builder.linear(builder.gather(h, "gcn_loops" if loops else "gcn"), "lin", options.out_channels, bias="bias")


KIND = LayerKind("gcn", GCNLayer, _pyg, steps, settings=SETTINGS)
