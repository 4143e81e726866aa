"""`gated_gcn`: the convolution with gates, which are computed from the states of bonds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from molgcn.nn.layers.base import Layer, LayerKind, LayerOptions
from molgcn.nn.layers.propagate import sum_incoming
from molgcn.ops.layer_network.steps import GATE_EPSILON

if TYPE_CHECKING:
    from molgcn.ops.layer_network.builder import Builder


class GatedGCNLayer(Layer):
    r"""The gated graph convolution, with gates normalised over the bonds that end at an atom.

    .. math::
        t_{ij} = D h_i + E h_j + C e_{ij}, \qquad
        h_i' = A h_i + \frac{\sum_j \sigma(t_{ij}) \odot B h_j}{\sum_j \sigma(t_{ij}) + 10^{-6}}

    The bonds' new states are :math:`t_{ij}`. Norm, activation, dropout and residual of both states are the network's.

    Source: Bresson and Laurent, "Residual Gated Graph ConvNets", 2017; Dwivedi et al., "Benchmarking Graph Neural Networks", JMLR 2023.
    """

    def __init__(self, options: LayerOptions) -> None:
        super().__init__()
        assert options.edge_channels is not None
        in_channels, out_channels = options.in_channels, options.out_channels
        self.A = nn.Linear(in_channels, out_channels)
        self.B = nn.Linear(in_channels, out_channels)
        self.C = nn.Linear(options.edge_channels, out_channels)
        self.D = nn.Linear(in_channels, out_channels)
        self.E = nn.Linear(in_channels, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> tuple[Tensor, Tensor]:
        """Return the new states of the atoms [N, out_channels] and of the bonds [E, out_channels]."""
        source, target = edge_index[0], edge_index[1]
        bonds = self.C(edge_attr) + self.D(x).index_select(0, target) + self.E(x).index_select(0, source)
        gates = bonds.sigmoid()
        messages = sum_incoming(gates * self.B(x).index_select(0, source), target, x.shape[0])
        return self.A(x) + messages / (sum_incoming(gates, target, x.shape[0]) + GATE_EPSILON), bonds


def _pyg(options: LayerOptions) -> nn.Module:
    from molgcn.nn.layers.message_passing import GatedGCNConv

    return GatedGCNConv(GatedGCNLayer(options))


def steps(builder: Builder, options: LayerOptions, h: int) -> int:
    """Add the layer's steps. The bonds' new states are the gates before the sigmoid."""
    width = options.out_channels
    bonds, neighbours, target, source = (builder.linear(*of, width) for of in ((builder.bonds, "C"), (h, "B"), (h, "D"), (h, "E")))
    builder.bonds = builder.expand(source, target=target, bonds=bonds)
    return builder.linear(h, "A", width, add=builder.gate(neighbours, builder.bonds))


KIND = LayerKind("gated_gcn", GatedGCNLayer, _pyg, steps, bonds="always", edge_states=True)
