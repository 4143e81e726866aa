"""`sage`: a linear map of the mean, sum or maximum over the neighbours, plus a linear map of the atom itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.nn import functional as F

from molgcn.config.layer_settings import defaults_of
from molgcn.errors import UserError
from molgcn.nn.layers.base import Layer, LayerKind, LayerOptions
from molgcn.nn.layers.propagate import max_incoming, mean_incoming, sum_incoming

if TYPE_CHECKING:
    from molgcn.ops.layer_network.builder import Builder

SETTINGS = defaults_of("aggr", "project", "normalize", "root_weight")
_AGGREGATIONS = {"mean": mean_incoming, "sum": sum_incoming, "max": max_incoming}


class SAGELayer(Layer):
    r"""The GraphSAGE layer :math:`h_i' = W_l \, \mathrm{aggr}_j(h_j) + b + W_r h_i`, equal to PyG's `SAGEConv`.

    Source: Hamilton et al., "Inductive Representation Learning on Large Graphs", NeurIPS 2017, algorithm 1.
    """

    def __init__(self, options: LayerOptions) -> None:
        super().__init__()
        settings = _settings(options)
        self.aggregate = _AGGREGATIONS[settings["aggr"]]
        self.normalize = settings["normalize"]
        self.lin = nn.Linear(options.in_channels, options.in_channels) if settings["project"] else None
        self.lin_l = nn.Linear(options.in_channels, options.out_channels)
        self.lin_r = nn.Linear(options.in_channels, options.out_channels, bias=False) if settings["root_weight"] else None
        self.reset_parameters()

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: None = None) -> Tensor:
        """Return the atoms' new states [N, out_channels]."""
        neighbours = x if self.lin is None else self.lin(x).relu()
        out = self.lin_l(self.aggregate(neighbours.index_select(0, edge_index[0]), edge_index[1], x.shape[0]))
        if self.lin_r is not None:
            out = out + self.lin_r(x)
        return F.normalize(out, dim=-1) if self.normalize else out


def _settings(options: LayerOptions) -> dict[str, Any]:
    settings = options.settings_over(SETTINGS)
    if settings["aggr"] not in _AGGREGATIONS:
        raise UserError(f"model.aggr={settings['aggr']}: expected one of {', '.join(_AGGREGATIONS)}.")
    return settings


def _pyg(options: LayerOptions) -> nn.Module:
    from torch_geometric.nn import SAGEConv

    return SAGEConv(options.in_channels, options.out_channels, **_settings(options))


def steps(builder: Builder, options: LayerOptions, h: int) -> int:
    """Add the layer's steps."""
    settings = _settings(options)
    neighbours = builder.linear(h, "lin", options.in_channels, relu=True) if settings["project"] else h
    out = builder.linear(builder.gather(neighbours, settings["aggr"]), "lin_l", options.out_channels)
    if settings["root_weight"]:
        out = builder.linear(h, "lin_r", options.out_channels, bias="", add=out)
    return builder.normalize(out) if settings["normalize"] else out


KIND = LayerKind("sage", SAGELayer, _pyg, steps, settings=SETTINGS)
