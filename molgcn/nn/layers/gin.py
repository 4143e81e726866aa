"""`gin`: the sum over the neighbours plus the atom itself, then a multilayer perceptron."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from molgcn.config.layer_settings import defaults_of
from molgcn.errors import UserError
from molgcn.nn.activations import ACTIVATIONS
from molgcn.nn.layers.base import LayerKind, LayerOptions
from molgcn.nn.layers.propagate import sum_incoming
from molgcn.nn.norms import BatchNorm

if TYPE_CHECKING:
    from molgcn.ops.layer_network.builder import Builder

SETTINGS = defaults_of("eps", "train_eps", "mlp_norm", "mlp_activation")


class MLP(nn.Sequential):
    """A linear map, batch norm if `mlp_norm` is set, an activation and another linear map: from [N, in_channels] to [N, out_channels]."""

    def __init__(self, options: LayerOptions) -> None:
        settings, channels = options.settings_over(SETTINGS), options.out_channels
        name = settings["mlp_activation"]
        if name not in ACTIVATIONS:
            raise UserError(f"model.mlp_activation={name}: expected one of {', '.join(ACTIVATIONS)}.")
        first, last = nn.Linear(options.in_channels, channels), nn.Linear(channels, channels)
        super().__init__(first, *([BatchNorm(channels)] if settings["mlp_norm"] else []), ACTIVATIONS[name](), last)

    def reset_parameters(self) -> None:
        """Draw the linear maps as `torch.nn.Linear` does, and reset the batch norm."""
        for part in self:
            if isinstance(part, nn.Linear | BatchNorm):
                part.reset_parameters()

    def forward(self, x: Tensor, count: Tensor | None = None) -> Tensor:
        """Return the output of the last map [N, out_channels]."""
        for part in self:
            x = part(x, count) if isinstance(part, BatchNorm) else part(x)
        return x


class GINUpdate(nn.Module):
    """The update that `gin` and `gine` share: an MLP of (1 + eps) times the atom's state plus the sum of its messages."""

    eps: Tensor

    def __init__(self, options: LayerOptions) -> None:
        super().__init__()
        settings = options.settings_over(SETTINGS)
        self.nn = MLP(options)
        self.initial_eps = settings["eps"]
        if settings["train_eps"]:
            self.eps = nn.Parameter(torch.empty(1))
        else:
            self.register_buffer("eps", torch.empty(1))

    def reset_parameters(self) -> None:
        """Draw the MLP, and set eps to its initial value."""
        self.nn.reset_parameters()
        nn.init.constant_(self.eps, self.initial_eps)

    def update(self, x: Tensor, incoming: Tensor, count: Tensor | None) -> Tensor:
        """Return the atoms' new states [N, out_channels] from the states [N, in_channels] and the sum of the messages to each."""
        return self.nn(incoming + (1 + self.eps) * x, count)


class GINLayer(GINUpdate):
    r"""The graph isomorphism layer :math:`h_i' = \mathrm{MLP}((1 + \epsilon) h_i + \sum_j h_j)`, equal to PyG's `GINConv`.

    Source: Xu et al., "How Powerful are Graph Neural Networks?", ICLR 2019, equation 4.1.
    """

    def __init__(self, options: LayerOptions) -> None:
        super().__init__(options)
        self.reset_parameters()

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: None = None, count: Tensor | None = None) -> Tensor:
        return self.update(x, sum_incoming(x.index_select(0, edge_index[0]), edge_index[1], x.shape[0]), count)


def _pyg(options: LayerOptions) -> nn.Module:
    from torch_geometric.nn import GINConv

    settings = options.settings_over(SETTINGS)
    return GINConv(MLP(options), settings["eps"], settings["train_eps"])


def update_steps(builder: Builder, options: LayerOptions, h: int, bonds: int | None) -> int:
    """Add the steps of the sum of the messages and of the update that `gin` and `gine` share."""
    settings, channels = options.settings_over(SETTINGS), options.out_channels
    summed = builder.gather(h, bonds=bonds, eps="eps", train_eps=settings["train_eps"])
    norm, last = ("nn.1", "nn.3") if settings["mlp_norm"] else ("", "nn.2")
    hidden = builder.finish(builder.linear(summed, "nn.0", channels), norm, activation=settings["mlp_activation"])
    return builder.linear(hidden, last, channels)


def steps(builder: Builder, options: LayerOptions, h: int) -> int:
    return update_steps(builder, options, h, None)


KIND = LayerKind("gin", GINLayer, _pyg, steps, counts_atoms=True, settings=SETTINGS)
