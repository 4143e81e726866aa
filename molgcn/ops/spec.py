"""What is static about a network, and its parameters in the order that follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

from torch import Tensor

from molgcn.ops.spec_text import from_text, to_text

MESSAGES = ("gcn",)
NORMS = (None, "batch", "layer")
POOLS = ("mean", "sum", "max")
_HEADING = "molgcn.network/1"  # of the string form, with its version


@dataclass(frozen=True)
class NetworkSpec:
    r"""Everything static about a network of L layers, K of which have a norm.

    Attributes:
        in_channels: columns of the first layer's input, F.
        hidden_channels: width of every layer, H.
        num_layers: L.
        message: the kind of layer, "gcn".
        norm: "batch", "layer" or None.
        residual: add a layer's input to its output where the widths agree.
        add_self_loops: False leaves the identity out of :math:`\hat A`.
        last_activation: the last layer has norm, relu and dropout too.
        dropout: probability of a zero in training.
        pool: "mean", "sum" or "max" over each molecule's atoms; of equal largest atoms each takes an equal share of the gradient.
        eps: of the norm.
        momentum: of the running statistics, as `torch.nn.BatchNorm1d`.

    Raises:
        ValueError: naming the option that is unknown or out of range.
    """

    in_channels: int
    hidden_channels: int
    num_layers: int
    message: str = "gcn"
    norm: str | None = None
    residual: bool = False
    add_self_loops: bool = True
    last_activation: bool = False
    dropout: float = 0.0
    pool: str = "mean"
    eps: float = 1e-5
    momentum: float = 0.1

    def __post_init__(self) -> None:
        for option, value, names in (("message", self.message, MESSAGES), ("norm", self.norm, NORMS), ("pool", self.pool, POOLS)):
            if value not in names:
                raise ValueError(f"{option}={value} is unknown. Expected one of {', '.join(map(str, names))}.")
        if self.num_layers < 1 or self.hidden_channels < 1:
            raise ValueError(
                f"num_layers={self.num_layers}, hidden_channels={self.hidden_channels}: expected at least one layer and feature"
            )
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout={self.dropout}, expected a probability of at least 0 and below 1")

    @property
    def num_norms(self) -> int:
        """K."""
        return 0 if self.norm is None else self.num_layers - (not self.last_activation)

    @cached_property
    def parameters(self) -> Mapping[str, tuple[int, ...]]:
        """The parameters' shapes by their names in a state dict, in the order in which operators take them."""
        layers, norms, vector = range(self.num_layers), range(self.num_norms), (self.hidden_channels,)
        weights = {f"convs.{i}.lin.weight": (self.hidden_channels, self.hidden_channels if i else self.in_channels) for i in layers}
        biases = {f"convs.{i}.bias": vector for i in layers}
        return weights | biases | {f"norms.{i}.{name}": vector for name in ("weight", "bias") for i in norms}

    @cached_property
    def statistics(self) -> Mapping[str, tuple[int, ...]]:
        """The running statistics' shapes, likewise."""
        norms = range(self.num_norms if self.norm == "batch" else 0)
        return {f"norms.{i}.{name}": (self.hidden_channels,) for name in ("running_mean", "running_var") for i in norms}

    def to_string(self) -> str:
        """Return the versioned form that operators take: "molgcn.network/1 in_channels=11 hidden_channels=32 ..."."""
        return to_text(self, _HEADING)

    @classmethod
    def from_string(cls, text: str) -> NetworkSpec:
        """Return the spec of :meth:`to_string`, one object for each text.

        Raises:
            ValueError: for a text of another version, or one that does not name every option once.
        """
        return from_text(cls, _HEADING, text)


class Parameters(NamedTuple):
    """Tensors of a network by what they are, each list in the order of the layers: the parameters, or as many gradients.

    Attributes:
        weights: L tensors [H, F] (first) and [H, H], as `torch.nn.Linear` stores them.
        biases: L tensors [H].
        norm_weights: K tensors [H].
        norm_biases: K tensors [H].
        running_means: K tensors [H] with norm="batch", else none; none too for the backward of batch norm in training.
        running_vars: likewise.
    """

    weights: Sequence[Tensor]
    biases: Sequence[Tensor]
    norm_weights: Sequence[Tensor] = ()
    norm_biases: Sequence[Tensor] = ()
    running_means: Sequence[Tensor] = ()
    running_vars: Sequence[Tensor] = ()

    @classmethod
    def of(cls, spec: NetworkSpec, tensors: Sequence[Tensor], statistics: Sequence[Tensor] = ()) -> Self:
        """Tell apart the tensors that stand in the order of :attr:`NetworkSpec.parameters` and :attr:`NetworkSpec.statistics`."""
        layers, norms, half = spec.num_layers, spec.num_norms, len(statistics) // 2
        return cls(
            tensors[:layers],
            tensors[layers : 2 * layers],
            tensors[2 * layers : 2 * layers + norms],
            tensors[2 * layers + norms :],
            statistics[:half],
            statistics[half:],
        )

    @property
    def tensors(self) -> list[Tensor]:
        """All parameters in the order of the spec."""
        return [*self.weights, *self.biases, *self.norm_weights, *self.norm_biases]

    @property
    def statistics(self) -> list[Tensor]:
        """All running statistics in the order of the spec."""
        return [*self.running_means, *self.running_vars]
