"""`gine`: GIN with bonds, whose features are added to the neighbours' states before these are summed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from molgcn.nn.layers.base import LayerKind, LayerOptions
from molgcn.nn.layers.gin import MLP, SETTINGS, GINUpdate, update_steps
from molgcn.nn.layers.propagate import sum_incoming
from molgcn.ops.layer_network.steps import BONDS

if TYPE_CHECKING:
    from molgcn.ops.layer_network.builder import Builder


class GINELayer(GINUpdate):
    r"""The layer :math:`h_i' = \mathrm{MLP}((1 + \epsilon) h_i + \sum_j \mathrm{relu}(h_j + e_{ij}))`, equal to PyG's `GINEConv`.

    A linear map `lin` brings the bonds' rows to the atoms' width where they have another width.

    Source: Hu et al., "Strategies for Pre-training Graph Neural Networks", ICLR 2020, appendix A.
    """

    def __init__(self, options: LayerOptions) -> None:
        super().__init__(options)
        width = _mapped_width(options)
        self.lin = None if width is None else nn.Linear(width, options.in_channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the MLP and the bonds' map as `torch.nn.Linear` does, and set eps to its initial value."""
        super().reset_parameters()
        if self.lin is not None:
            self.lin.reset_parameters()

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, count: Tensor | None = None) -> Tensor:
        """Return the atoms' new states [N, out_channels]."""
        bonds = edge_attr if self.lin is None else self.lin(edge_attr)
        message = (x.index_select(0, edge_index[0]) + bonds).relu()
        return self.update(x, sum_incoming(message, edge_index[1], x.shape[0]), count)


def _mapped_width(options: LayerOptions) -> int | None:
    """Return the width of the bonds' rows if they need a map to the atoms' width, else None: PyG's `edge_dim`."""
    return None if options.edge_channels == options.in_channels else options.edge_channels


def _pyg(options: LayerOptions) -> nn.Module:
    from torch_geometric.nn import GINEConv

    settings = options.settings_over(SETTINGS)
    return GINEConv(MLP(options), settings["eps"], settings["train_eps"], _mapped_width(options))


def steps(builder: Builder, options: LayerOptions, h: int) -> int:
    """Add the layer's steps."""
    bonds = BONDS if _mapped_width(options) is None else builder.linear(BONDS, "lin", options.in_channels)
    return update_steps(builder, options, h, bonds)


KIND = LayerKind("gine", GINELayer, _pyg, steps, bonds="always", counts_atoms=True, settings=SETTINGS)
