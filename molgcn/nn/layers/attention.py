"""The part that `gat` and `gatv2` share: every atom attends to its neighbours and to itself, with several heads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from molgcn.config.layer_settings import defaults_of
from molgcn.errors import UserError
from molgcn.nn.init import GlorotLinear, glorot
from molgcn.nn.layers.base import LayerOptions
from molgcn.nn.layers.propagate import mean_incoming, softmax_incoming, sum_incoming
from molgcn.ops.layer_network.steps import BONDS

if TYPE_CHECKING:
    from molgcn.ops.layer_network.builder import Builder

SETTINGS = defaults_of("heads", "concat", "negative_slope", "attention_dropout", "bias", "linear_residual")


class Bonds(NamedTuple):
    """The bonds of a batch, followed by one self-loop per atom."""

    source: Tensor  # int64 [E + N], the atom that each bond starts at
    target: Tensor  # int64 [E + N], the atom that each bond ends at
    replaced: Tensor  # bool [E + N], marks the given self-loops, which the added ones replace
    # [E + N, D], features of the bonds, or None. An added self-loop has the mean of the bonds that end at its atom, or 0 if there are none
    edge_attr: Tensor | None


def with_own_bonds(edge_index: Tensor, edge_attr: Tensor | None, num_atoms: int) -> Bonds:
    """Return the bonds and one self-loop per atom, in place of PyG's `remove_self_loops` and `add_self_loops`.

    PyG's number of bonds depends on how many self-loops there are. Here the given self-loops stay and are marked as replaced.
    """
    source, target = edge_index[0], edge_index[1]
    atoms = torch.arange(num_atoms, device=edge_index.device)
    loop = source == target
    if edge_attr is not None:
        counted_at = target.masked_fill(loop, num_atoms)  # self-loops go to a row of their own, which is dropped
        edge_attr = torch.cat([edge_attr, mean_incoming(edge_attr, counted_at, num_atoms + 1)[:num_atoms]])
    replaced = torch.cat([loop, torch.zeros_like(atoms, dtype=torch.bool)])
    return Bonds(torch.cat([source, atoms]), torch.cat([target, atoms]), replaced, edge_attr)


class AttentionLayer(nn.Module, ABC):
    """Base of both attention layers, which add :meth:`scores`, and the maps and vectors for it; see :func:`pyg_arguments`."""

    bias: Tensor | None

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        super().__init__()
        self.heads, self.head_channels, self.concat = arguments["heads"], arguments["out_channels"], arguments["concat"]
        self.negative_slope, self.dropout = arguments["negative_slope"], arguments["dropout"]

    def vector(self) -> nn.Parameter:
        """Return an uninitialised attention vector for each head."""
        return nn.Parameter(torch.empty(1, self.heads, self.head_channels))

    def add_shared_parameters(self, arguments: Mapping[str, Any]) -> None:
        """Make `lin_edge`, `res` and `bias`, each None where the arguments leave it out."""
        width, edge_channels = self.heads * self.head_channels, arguments["edge_dim"]
        out_channels = width if self.concat else self.head_channels
        self.lin_edge = None if edge_channels is None else GlorotLinear(edge_channels, width, bias=False)
        self.res = GlorotLinear(arguments["in_channels"], out_channels, bias=False) if arguments["residual"] else None
        self.register_parameter("bias", nn.Parameter(torch.empty(out_channels)) if arguments["bias"] else None)

    def draw(self, linears: Sequence[nn.Linear], vectors: Sequence[Tensor | None]) -> None:
        """Draw the given maps and vectors and the shared parameters as PyG does, in its order.

        Maps and vectors are drawn by Glorot's rule, and the bias is set to 0.
        """
        for linear in (*linears, self.lin_edge, self.res):
            if linear is not None:
                linear.reset_parameters()
        for vector in vectors:
            if vector is not None:
                glorot(vector)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def by_head(self, states: Tensor) -> Tensor:
        """Return states [rows, heads * head_channels] as [rows, heads, head_channels]."""
        return states.view(-1, self.heads, self.head_channels)

    @abstractmethod
    def scores(self, x: Tensor, bonds: Bonds) -> tuple[Tensor, Tensor]:
        """Return the score of each bond and head [E + N, heads], and the state that each bond carries [E + N, heads, head_channels].

        Args:
            x: the layer's input, [N, in_channels].
            bonds: the E bonds and one self-loop per atom.
        """

    def attention_weights(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return what PyG's layer returns for `return_attention_weights`, without dropout, for the arguments of :meth:`forward`.

        Returns:
            The bonds without given self-loops, then a self-loop per atom, int64 [2, E']; and the weights of the heads, [E', heads]. Those
            of the bonds that end at an atom, its self-loop among them, add up to 1.
        """
        bonds = with_own_bonds(edge_index, edge_attr, x.shape[0])
        weights, _ = self._weights(x, bonds)
        kept = ~bonds.replaced
        return torch.stack([bonds.source, bonds.target])[:, kept], weights[kept]

    def _weights(self, x: Tensor, bonds: Bonds) -> tuple[Tensor, Tensor]:
        """Return the weight of each bond and head, 0 for given self-loops, and the state that each bond carries."""
        scores, states = self.scores(x, bonds)
        return softmax_incoming(scores.masked_fill(bonds.replaced[:, None], -torch.inf), bonds.target, x.shape[0]), states

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        """Return the atoms' new states [N, out_channels]."""
        bonds = with_own_bonds(edge_index, edge_attr, x.shape[0])
        weights, states = self._weights(x, bonds)
        # PyG drops given self-loops, so its dropout draws fewer numbers: the masks then differ for the same seed.
        weights = F.dropout(weights, self.dropout, self.training)
        out = sum_incoming((weights[:, :, None] * states).flatten(1), bonds.target, x.shape[0])
        if not self.concat:
            out = self.by_head(out).mean(1)
        if self.res is not None:
            out = out + self.res(x)
        return out if self.bias is None else out + self.bias


def pyg_arguments(options: LayerOptions, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of PyG's layer, whose `out_channels` is the width of one head, after a check."""
    settings = options.settings_over(defaults)
    heads, dropout, concat = settings["heads"], settings.pop("attention_dropout"), settings["concat"]
    if heads < 1 or (concat and options.out_channels % heads != 0):
        raise UserError(
            f"model.heads={heads} does not fit a layer of {options.out_channels} channels: expected a divisor of {options.out_channels}, "
            "since the heads stand side by side. With model.concat=false, which averages the heads, any number of at least 1 is possible."
        )
    if not 0 <= dropout < 1:
        raise UserError(f"model.attention_dropout={dropout}: expected a probability of at least 0 and below 1.")
    residual = settings.pop("linear_residual")
    return {
        **settings,
        "in_channels": options.in_channels,
        "out_channels": options.out_channels // heads if concat else options.out_channels,
        "edge_dim": options.edge_channels,
        "dropout": dropout,
        "residual": residual,
    }


def attention_steps(
    builder: Builder, arguments: Mapping[str, Any], h: int, source: int, vectors: Sequence[str], target: int | None = None
) -> int:
    """Add the steps that follow a layer's maps.

    Args:
        builder: The steps so far.
        arguments: The arguments of PyG's layer.
        h: The layer's input.
        source: The mapped states of the atoms, which are summed.
        vectors: The names of the attention vectors, as :meth:`molgcn.ops.layer_network.builder.Builder.attend` takes them.
        target: The mapped states of the targets in GATv2's scores, or None.
    """
    bias, residual, concat = "bias" if arguments["bias"] else "", arguments["residual"], arguments["concat"]
    bonds = None if arguments["edge_dim"] is None else builder.linear(BONDS, "lin_edge", builder.width(source), bias="")
    out = builder.attend(
        source,
        arguments["heads"],
        vectors,
        target=target,
        bonds=bonds,
        bias="" if residual else bias,
        concat=concat,
        slope=arguments["negative_slope"],
        dropout=arguments["dropout"],
    )
    return builder.linear(h, "res", builder.width(out), bias=bias, add=out) if residual else out
