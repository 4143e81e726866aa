"""The static description of a network, and its parameters by their names in a state dict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from molgcn.ops.spec_text import from_text, to_text

MESSAGES = ("gcn", "gin", "gine", "gcn_edge", "sage")
NORMS = (None, "batch", "layer")
POOLS = ("mean", "sum", "max")
AGGREGATIONS = ("mean", "sum", "max")
_HEADING = "molgcn.layer_network/1"  # the first word of the string form, with its version


@dataclass(frozen=True)
class LayerNetworkSpec:
    r"""The static description of a network of L layers.

    Each layer computes

    .. math::
        H_{l+1} = \mathrm{block}(\mathrm{dropout}(\mathrm{relu}(\mathrm{norm}(\mathrm{conv}(H_l)))) \; (+ H_l)),

    where the block is a :class:`molgcn.nn.feed_forward.FeedForward` with `feed_forward`, and otherwise the identity.

    Attributes:
        message: The layer in :mod:`molgcn.nn.layers`: "gcn", "gin", "gine", "gcn_edge" or "sage".
        in_channels: The number of columns of the first layer's input, F.
        hidden_channels: The width of every layer, H.
        num_layers: The number of layers, L.
        edge_channels: The number of bond features, D, for "gine" and "gcn_edge"; None for the other layers.
        norm: The norm after every layer: "batch", "layer" or None.
        residual: Whether a layer's input is added to its output if the widths agree.
        feed_forward: Whether a feed-forward block follows every layer.
        feed_forward_norm: The norm in these blocks: "batch", "layer" or None.
        last_activation: Whether the last layer has norm, relu and dropout too.
        dropout: The probability that an activation is dropped in training.
        pool: "mean", "sum" or "max" over each molecule's atoms. Atoms that are equally largest share the gradient of "max" equally.
        add_self_loops: For "gcn": whether the identity is added to the adjacency.
        train_eps: For "gin" and "gine": whether eps is learnt.
        mlp_norm: For "gin" and "gine": whether the MLP has batch norm before its activation.
        aggr: For "sage": "mean", "sum" or "max".
        project: For "sage": whether the neighbours pass a linear map and relu first.
        normalize: For "sage": whether every atom's new features are scaled to length 1.
        root_weight: For "sage": whether the atom itself is added, through a weight of its own.
        eps: The value that the norms add to the variance.
        momentum: The momentum of the running statistics; see `torch.nn.BatchNorm1d`.

    Raises:
        ValueError: If an option is unknown or out of range. The message names it.
    """

    message: str
    in_channels: int
    hidden_channels: int
    num_layers: int
    edge_channels: int | None = None
    norm: str | None = None
    residual: bool = False
    feed_forward: bool = False
    feed_forward_norm: str | None = "batch"
    last_activation: bool = True
    dropout: float = 0.0
    pool: str = "mean"
    add_self_loops: bool = True
    train_eps: bool = False
    mlp_norm: bool = False
    aggr: str = "mean"
    project: bool = False
    normalize: bool = False
    root_weight: bool = True
    eps: float = 1e-5
    momentum: float = 0.1

    def __post_init__(self) -> None:
        choices = {"message": MESSAGES, "norm": NORMS, "feed_forward_norm": NORMS, "pool": POOLS, "aggr": AGGREGATIONS}
        for option, names in choices.items():
            if getattr(self, option) not in names:
                raise ValueError(f"{option}={getattr(self, option)} is unknown. Expected one of {', '.join(map(str, names))}.")
        if self.num_layers < 1 or self.hidden_channels < 1:
            raise ValueError(
                f"num_layers={self.num_layers}, hidden_channels={self.hidden_channels}: expected at least one layer and feature"
            )
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout={self.dropout}, expected a probability of at least 0 and below 1")
        if (self.message in ("gine", "gcn_edge")) != (self.edge_channels is not None):
            raise ValueError(
                f"message={self.message} with edge_channels={self.edge_channels}: gine and gcn_edge need edge_channels, others expect None"
            )

    def activated(self, layer: int) -> bool:
        """Return whether norm, relu and dropout follow a layer."""
        return layer < self.num_layers - 1 or self.last_activation

    def in_width(self, layer: int) -> int:
        """Return the number of columns of a layer's input."""
        return self.hidden_channels if layer else self.in_channels

    @cached_property
    def parameters(self) -> Mapping[str, tuple[int, ...]]:
        """The parameters' shapes by their names in a state dict, in the order of the operator's arguments."""
        shapes: dict[str, tuple[int, ...]] = {}
        for layer in range(self.num_layers):
            shapes |= _conv_shapes(self, layer)
            if self.feed_forward:
                shapes |= _feed_forward_shapes(self, layer)
        return shapes | {name: (self.hidden_channels,) for prefix in self.norms for name in (f"{prefix}.weight", f"{prefix}.bias")}

    @cached_property
    def norms(self) -> Mapping[str, str]:
        """The kind of every norm, by its name in a state dict, in the order of the network."""
        kinds: dict[str, str] = {}
        for layer in range(self.num_layers):
            if self.mlp_norm:
                kinds[f"convs.{layer}.nn.1"] = "batch"
            if self.norm is not None and self.activated(layer):
                kinds[f"norms.{layer}"] = self.norm
            if self.feed_forward and self.feed_forward_norm is not None:
                kinds |= {f"feed_forwards.{layer}.{name}": self.feed_forward_norm for name in ("norm1", "norm2")}
        return kinds

    @cached_property
    def batch_norms(self) -> tuple[str, ...]:
        """The names of the batch norms, in the order of the network."""
        return tuple(name for name, kind in self.norms.items() if kind == "batch")

    @cached_property
    def statistics(self) -> Mapping[str, tuple[int, ...]]:
        """The running statistics' shapes by their names in a state dict, in the operator's order: all means, then all variances."""
        return {f"{norm}.{kind}": (self.hidden_channels,) for kind in ("running_mean", "running_var") for norm in self.batch_norms}

    def to_string(self) -> str:
        """Return the versioned string that the operator takes, such as "molgcn.layer_network/1 message=gine in_channels=11 ..."."""
        return to_text(self, _HEADING)

    @classmethod
    def from_string(cls, text: str) -> LayerNetworkSpec:
        """Return the spec of a string that :meth:`to_string` has made. Equal strings give the same object.

        Raises:
            ValueError: If the string is of another version, or does not name every option once.
        """
        return from_text(cls, _HEADING, text)


def _conv_shapes(spec: LayerNetworkSpec, layer: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of one layer's parameters."""
    of, width, hidden, bonds = f"convs.{layer}", spec.in_width(layer), spec.hidden_channels, spec.edge_channels
    if spec.message in ("gin", "gine"):
        last = 3 if spec.mlp_norm else 2
        shapes: dict[str, tuple[int, ...]] = {f"{of}.eps": (1,)}
        if spec.message == "gine" and bonds is not None and bonds != width:
            shapes |= _linear(f"{of}.lin", bonds, width)
        return shapes | _linear(f"{of}.nn.0", width, hidden) | _linear(f"{of}.nn.{last}", hidden, hidden)
    if spec.message == "sage":
        shapes = _linear(f"{of}.lin", width, width) if spec.project else {}
        shapes |= _linear(f"{of}.lin_l", width, hidden)
        return shapes | ({f"{of}.lin_r.weight": (hidden, width)} if spec.root_weight else {})
    shapes = {f"{of}.lin.weight": (hidden, width), f"{of}.bias": (hidden,)}
    if spec.message == "gcn_edge" and bonds is not None and bonds != hidden:
        shapes |= _linear(f"{of}.lin_edge", bonds, hidden)
    return shapes


def _feed_forward_shapes(spec: LayerNetworkSpec, layer: int) -> dict[str, tuple[int, ...]]:
    of, hidden = f"feed_forwards.{layer}", spec.hidden_channels
    return _linear(f"{of}.lin1", hidden, 2 * hidden) | _linear(f"{of}.lin2", 2 * hidden, hidden)


def _linear(name: str, in_channels: int, out_channels: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (out_channels, in_channels), f"{name}.bias": (out_channels,)}
