"""`dmpnn`: Chemprop's network, which passes messages between directed bonds and never straight back along a bond."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from molgcn.config.layer_settings import defaults_of
from molgcn.errors import UserError
from molgcn.nn.activations import ACTIVATIONS
from molgcn.nn.layers.base import Layer, LayerKind, LayerOptions
from molgcn.nn.layers.propagate import reverse_bonds, sum_incoming
from molgcn.nn.padding import without_padding
from molgcn.ops.layer_network.builder import Builder
from molgcn.ops.layer_network.steps import BONDS

SETTINGS = {
    "depth": 3,  # rounds of messages; the first one computes the bonds' first states
    "dropout": 0.0,  # probability that an element of a state is zeroed in training
    "activation": "relu",
    **defaults_of("undirected", "message_bias"),
}


class DMPNN(Layer):
    r"""The directed message-passing network with all rounds in one module, equal to Chemprop's `BondMessagePassing`.

    .. math::
        h^0_{vw} &= W_i [x_v, e_{vw}], \qquad h_{vw} = \tau(h^0_{vw}) \\
        h_{vw} &\leftarrow \tau\big(h^0_{vw} + W_h (\textstyle\sum_u h_{uv} - h_{wv})\big), \qquad \text{depth} - 1 \text{ times} \\
        h_v &= \tau\big(W_o [x_v, \textstyle\sum_u h_{uv}] + b\big)

    All rounds share :math:`W_h`. Dropout follows every activation but the first. Every directed bond needs its own reverse, also if there
    are several between two atoms, see :func:`reverse_bonds`. Without bond features :math:`W_i` sees the atom alone.
    With `message_bias`, :math:`W_i` and :math:`W_h` have biases.

    Source: Yang et al., "Analyzing Learned Molecular Representations for Property Prediction", JCIM 2019, equations 1 to 5.
    """

    def __init__(self, options: LayerOptions) -> None:
        super().__init__()
        settings = options.settings_over(SETTINGS)
        self.depth, self.undirected = settings["depth"], settings["undirected"]
        if self.depth < 1:
            raise UserError(f"depth={self.depth}: expected at least one round of messages.")
        if settings["activation"] not in ACTIVATIONS:
            raise UserError(f"activation={settings['activation']} is unknown. Expected one of {', '.join(ACTIVATIONS)}.")
        in_channels, channels = options.in_channels, options.out_channels
        self.W_i = nn.Linear(in_channels + (options.edge_channels or 0), channels, settings["message_bias"])
        self.W_h = nn.Linear(channels, channels, settings["message_bias"])
        self.W_o = nn.Linear(in_channels + channels, channels)
        self.activation = ACTIVATIONS[settings["activation"]]()
        self.dropout = nn.Dropout(settings["dropout"])

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None, count: Tensor | None = None) -> Tensor:
        """Return the atoms' states [N, out_channels] after all rounds; the first `count` atoms of a padded batch are real."""
        source, target = edge_index[0], edge_index[1]
        reverse = reverse_bonds(edge_index, x.shape[0])
        first = self._first(x, source, edge_attr)
        states = self.activation(first)
        added = first if self.W_h.bias is None else first + self.W_h.bias
        for _ in range(1, self.depth):
            if self.undirected:
                states = (states + states.index_select(0, reverse)) / 2
            incoming = without_padding(sum_incoming(states, target, x.shape[0]), count)
            messages = incoming.index_select(0, source).sub_(states.index_select(0, reverse))
            states = self.dropout(self.activation(torch.addmm(added, messages, self.W_h.weight.t())))
        incoming = sum_incoming(states, target, x.shape[0])
        return self.dropout(self.activation(self.W_o(torch.cat([x, incoming], dim=1))))

    def _first(self, x: Tensor, source: Tensor, edge_attr: Tensor | None) -> Tensor:
        """Return W_i [x_v, e_vw] of every bond; the atoms' part of the product is computed once per atom, not once per bond."""
        if edge_attr is None:
            return self.W_i(x).index_select(0, source)
        atoms, bonds = self.W_i.weight.split([x.shape[1], edge_attr.shape[1]], dim=1)
        return torch.addmm(F.linear(x, atoms, self.W_i.bias).index_select(0, source), edge_attr, bonds.t())


def steps(builder: Builder, options: LayerOptions, h: int) -> int:
    """Add the steps of all rounds. Atoms and bonds are multiplied before they are expanded to directed bonds."""
    settings, channels = options.settings_over(SETTINGS), options.out_channels
    bias, activation, atoms = None if settings["message_bias"] else "", settings["activation"], builder.width(h)
    if options.edge_channels is None:
        first = builder.expand(builder.linear(h, "W_i", channels, bias=bias))
    else:
        projected = builder.linear(h, "W_i", channels, bias=bias, first_column=0)
        first = builder.expand(projected, bonds=builder.linear(BONDS, "W_i", channels, bias="", first_column=atoms))
    states = builder.finish(first, activation=activation)
    for _ in range(1, settings["depth"]):
        if settings["undirected"]:
            states = builder.average_directions(states)
        messages = builder.sum_non_backtracking(states)
        states = builder.finish(builder.linear(messages, "W_h", channels, bias=bias, add=first), activation=activation, dropout=True)
    incoming = builder.sum_incoming(states)
    own = builder.linear(h, "W_o", channels, bias="", first_column=0)
    update = builder.linear(incoming, "W_o", channels, first_column=atoms, add=own)
    return builder.finish(update, activation=activation, dropout=True)


def _pyg(options: LayerOptions) -> nn.Module:
    from molgcn.nn.layers.message_passing import DMPNNConv

    return DMPNNConv(DMPNN(options))


WITHOUT = {
    "norm": "all rounds share one matrix, and nothing stands between them",
    "residual": "every round adds the bonds' first states",
    "feed_forward": "it has no layers that blocks could follow",
    "readout": "only the last round gives states of atoms",
    "last_activation": "its last map is followed by the activation",
}

KIND = LayerKind("dmpnn", DMPNN, _pyg, steps, bonds="optional", stacked=False, counts_atoms=True, settings=SETTINGS, without=WITHOUT)
