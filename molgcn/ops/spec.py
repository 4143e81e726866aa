"""The static description of a network, and its parameters in the order that follows from the description."""

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
_HEADING = "molgcn.network/1"  # the first word of the string form, with its version


@dataclass(frozen=True)
class NetworkSpec:
    r"""The static description of a network of L layers, K of which have a norm.

    Attributes:
        in_channels: The number of columns of the first layer's input, F.
        hidden_channels: The width of every layer, H.
        num_layers: The number of layers, L.
        message: The kind of layer, "gcn".
        norm: "batch", "layer" or None.
        residual: Whether a layer's input is added to its output if the widths agree.
        add_self_loops: Whether the identity is part of :math:`\hat A`.
        last_activation: Whether the last layer has norm, relu and dropout too.
        dropout: The probability that an activation is dropped in training.
        pool: "mean", "sum" or "max" over each molecule's atoms. Atoms that are equally largest share the gradient of "max" equally.
        eps: The value that the norm adds to the variance.
        momentum: The momentum of the running statistics; see `torch.nn.BatchNorm1d`.

    Raises:
        ValueError: If an option is unknown or out of range. The message names it.
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
        """The number of layers with a norm, K."""
        return 0 if self.norm is None else self.num_layers - (not self.last_activation)

    @cached_property
    def parameters(self) -> Mapping[str, tuple[int, ...]]:
        """The parameters' shapes by their names in a state dict, in the order of the operators' arguments."""
        layers, norms, vector = range(self.num_layers), range(self.num_norms), (self.hidden_channels,)
        weights = {f"convs.{i}.lin.weight": (self.hidden_channels, self.hidden_channels if i else self.in_channels) for i in layers}
        biases = {f"convs.{i}.bias": vector for i in layers}
        return weights | biases | {f"norms.{i}.{name}": vector for name in ("weight", "bias") for i in norms}

    @cached_property
    def statistics(self) -> Mapping[str, tuple[int, ...]]:
        """The running statistics' shapes by their names in a state dict, in the order of the operators' arguments."""
        norms = range(self.num_norms if self.norm == "batch" else 0)
        return {f"norms.{i}.{name}": (self.hidden_channels,) for name in ("running_mean", "running_var") for i in norms}

    def to_string(self) -> str:
        """Return the versioned string that operators take, such as "molgcn.network/1 in_channels=11 hidden_channels=32 ..."."""
        return to_text(self, _HEADING)

    @classmethod
    def from_string(cls, text: str) -> NetworkSpec:
        """Return the spec of a string that :meth:`to_string` has made. Equal strings give the same object.

        Raises:
            ValueError: If the string is of another version, or does not name every option once.
        """
        return from_text(cls, _HEADING, text)


class Parameters(NamedTuple):
    """The parameters of a network, or their gradients, by kind. Each list is in the order of the layers.

    Attributes:
        weights: L tensors, the first [H, F] and the others [H, H], as `torch.nn.Linear` stores them.
        biases: L tensors [H].
        norm_weights: K tensors [H].
        norm_biases: K tensors [H].
        running_means: K tensors [H] with norm="batch". Empty for other norms and for the backward pass of batch norm in training.
        running_vars: K tensors [H] with norm="batch". Empty for other norms and for the backward pass of batch norm in training.
    """

    weights: Sequence[Tensor]
    biases: Sequence[Tensor]
    norm_weights: Sequence[Tensor] = ()
    norm_biases: Sequence[Tensor] = ()
    running_means: Sequence[Tensor] = ()
    running_vars: Sequence[Tensor] = ()

    @classmethod
    def of(cls, spec: NetworkSpec, tensors: Sequence[Tensor], statistics: Sequence[Tensor] = ()) -> Self:
        """Return tensors by kind, given in the order of :attr:`NetworkSpec.parameters` and :attr:`NetworkSpec.statistics`."""
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
