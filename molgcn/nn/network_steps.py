"""The steps of a whole network for backend=fused: those of its layers, with norms, activations, dropout, residuals and blocks."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, NamedTuple

from molgcn.nn.layers.base import INNER, LayerOptions
from molgcn.nn.registry import get_kind
from molgcn.ops.gcn_network import gcn_pattern
from molgcn.ops.layer_network.builder import Builder
from molgcn.ops.layer_network.program import POOLS, Program
from molgcn.ops.layer_network.steps import X


class NetworkOptions(NamedTuple):
    r"""The options that a network's steps depend on.

    Each of its layers computes

    .. math::
        H_{l+1} = \mathrm{block}(\mathrm{dropout}(\mathrm{act}(\mathrm{norm}(\mathrm{conv}(H_l)))) \; (+ H_l)),

    where the block is a :class:`molgcn.nn.feed_forward.FeedForward` with `feed_forward`, and otherwise the identity.
    """

    conv: str  # the name of the layer in the registry
    in_channels: int  # the number of columns of the first layer's input, F
    hidden_channels: int  # the width of every layer, H
    num_layers: int  # the number of layers, L
    edge_channels: int | None = None  # the number of columns of the bonds' rows, D, or None where the network sees no bonds
    norm: Literal["batch", "layer"] | None = None  # the norm after every layer: "batch", "layer" or None
    residual: bool = False  # whether a layer's input is added to its output if the widths agree
    feed_forward: bool = False  # whether a feed-forward block follows every layer
    feed_forward_norm: Literal["batch", "layer"] | None = "batch"  # the norm in these blocks: "batch", "layer" or None
    last_activation: bool = True  # whether the last layer has norm, activation and dropout too
    dropout: float = 0.0  # the probability that an activation is dropped, 0 outside training
    pool: str = "mean"  # "mean", "sum" or "max", or "none" for the states of the atoms
    readout: str = "last"  # "last" to pool the states of the last layer, or "all" for those of all layers side by side
    eps: float = 1e-5  # the value that the norms add to the variance
    momentum: float = 0.1  # the momentum of the running statistics
    activation: str = "relu"  # the activation, by the names of `torch.nn.functional`
    settings: tuple[tuple[str, Any], ...] = ()  # the names and values of the layer's own options
    training: bool = False  # whether layers drop what they drop by options of their own


def program_of(options: NetworkOptions | tuple[Any, ...]) -> Program:
    """Return the program of a network, one object for equal options. Under torch.compile these have to be a plain tuple.

    Raises:
        NoStepsError: If the layer has no steps for its settings.
    """
    return _program(*options)


# The program is a constant of a compiled graph: torch.compiler.assume_constant_result, whose import of torch._dynamo takes a second.
program_of._dynamo_marked_constant = True  # type: ignore[attr-defined]


def is_plain_gcn(conv: str, feed_forward: bool, rwse: int, pool: str, readout: str, activation: str) -> bool:
    """Return whether kernels made for graph convolutions may run a network: its program is their pattern, without encodings of walks."""
    if conv != "gcn" or rwse or pool not in POOLS:
        return False
    options = NetworkOptions(conv, 1, 1, 2, feed_forward=feed_forward, pool=pool, readout=readout, activation=activation)
    return gcn_pattern(_program(*options)) is not None


is_plain_gcn._dynamo_marked_constant = True  # type: ignore[attr-defined]


@cache
def _program(*options: Any) -> Program:
    network = NetworkOptions(*options)
    kind, hidden = get_kind(network.conv), network.hidden_channels
    assert kind.steps is not None, "a network of layers without steps has another backend"
    builder = Builder(network.in_channels, network.edge_channels, network.dropout, training=network.training)
    h, outs = X, list[int]()
    if not kind.stacked:
        builder.scope = "convs.0."
        settings = dict(network.settings) | {name: getattr(network, option) for name, option in INNER.items()}
        kind.steps(builder, LayerOptions(network.in_channels, hidden, network.edge_channels, settings), h)
        builder.end_layer()
        return builder.program(network.pool, network.eps, network.momentum)
    for layer in range(network.num_layers):
        builder.scope = f"convs.{layer}."
        own = LayerOptions(builder.width(h), hidden, network.edge_channels, dict(network.settings))
        last = layer == network.num_layers - 1
        has_bonds = kind.edge_states and not last  # the last layer's bond states are never read
        bonds = _residual(builder, network, builder.bonds) if has_bonds else None
        y = kind.steps(builder, own, h)
        builder.scope = ""
        if network.last_activation or not last:
            h = _end(builder, network, y, f"norms.{layer}", _residual(builder, network, h))
        else:
            h = builder.finish(y, add=_residual(builder, network, h))
        if network.feed_forward:
            builder.scope = f"feed_forwards.{layer}."
            h = _feed_forward(builder, h, network.feed_forward_norm, network.activation)
            builder.scope = ""
        if has_bonds:  # beside the next layer's steps on bonds
            builder.bonds = _end(builder, network, builder.bonds, f"edge_norms.{layer}", bonds)
        builder.end_layer()
        outs.append(h)
    return builder.program(network.pool, network.eps, network.momentum, outs if network.readout == "all" else ())


def _end(builder: Builder, network: NetworkOptions, y: int, norm: str, add: int | None) -> int:
    """Add what follows a layer: norm, activation, dropout and the addition of a residual."""
    norm = norm if network.norm else ""
    return builder.finish(y, norm, network.norm or "batch", activation=network.activation, dropout=True, add=add)


def _residual(builder: Builder, network: NetworkOptions, before: int) -> int | None:
    """Return what is added to a layer's output: its input `before`, of atoms or bonds, or None."""
    if not network.residual or builder.width(before) != network.hidden_channels:
        return None
    return builder.spread(before) if builder.rows(before) == "bonds" else before


def _feed_forward(builder: Builder, h: int, norm: Literal["batch", "layer"] | None, activation: str) -> int:
    """Add the steps of :class:`molgcn.nn.feed_forward.FeedForward`."""
    width = builder.width(h)
    h = builder.finish(h, "norm1", norm) if norm else h
    wide = builder.finish(builder.linear(h, "lin1", 2 * width), activation=activation, dropout=True)
    narrow = builder.finish(builder.linear(wide, "lin2", width), dropout=True, add=h)
    return builder.finish(narrow, "norm2", norm) if norm else narrow
