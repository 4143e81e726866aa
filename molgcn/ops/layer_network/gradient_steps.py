"""The kinds of steps of a network's backward pass, each the derivative of a step of the forward pass."""

from __future__ import annotations

from typing import NamedTuple

from molgcn.ops.layer_network.steps import Attend, EdgeStep, Expand, Finish, Gate, Gather, Linear, Normalize, Spread


class Produced(NamedTuple):
    """The gradient of a value that a backward step computes: the step's own contribution, plus `add`, times the derivative of `mask`.

    Attributes:
        value: The value.
        out: The number of the gradient.
        add: The number of the same value's gradient from later steps of the network, or None.
        mask: The step that made the value with relu, and perhaps dropout; None without relu. With a mask, the result is the gradient of
            relu's input. It is 0 where the value is 0, and otherwise multiplied by :math:`1 / (1 - p)` with dropout.
    """

    value: int
    out: int
    add: int | None = None
    mask: Linear | None = None


class PoolGrad(NamedTuple):
    """Compute the gradient of a value that is pooled, given the gradient of its pooled rows.

    Attributes:
        place: The value's place among the program's `outs`.
        source: The value's gradient.
    """

    place: int
    source: Produced


class FinishGrad(NamedTuple):
    """Compute the gradients of a :class:`Finish` step's source and of its norm's weight and bias, given gradient `grad`."""

    step: Finish
    grad: int
    source: Produced


class InputGrad(NamedTuple):
    """Compute the gradient of a :class:`Linear` step's source, given gradient `grad`: that of relu's input if the step has relu."""

    step: Linear
    grad: int
    source: Produced


class GatherGrad(NamedTuple):
    """Compute the gradients of a :class:`Gather` step's source, bonds and eps, each if it is wanted, given gradient `grad`."""

    step: Gather
    grad: int
    source: Produced | None
    bonds: Produced | None


class NormalizeGrad(NamedTuple):
    """Compute the gradient of a :class:`Normalize` step's source, given gradient `grad`."""

    step: Normalize
    grad: int
    source: Produced


class ExpandGrad(NamedTuple):
    """Compute the gradients of an :class:`Expand` step's source, bonds and target, each if it is wanted, given gradient `grad`."""

    step: Expand
    grad: int
    source: Produced | None
    bonds: Produced | None
    target: Produced | None


class SpreadGrad(NamedTuple):
    """Compute the gradient of a :class:`Spread` step's source, given gradient `grad`."""

    step: Spread
    grad: int
    source: Produced


class EdgeGrad(NamedTuple):
    """Compute the gradient of the source of a step that reads rows of edges, given gradient `grad`."""

    step: EdgeStep
    grad: int
    source: Produced


class AttendGrad(NamedTuple):
    """Compute the gradients of an :class:`Attend` step's source, target and bonds, each if it is wanted, and of its vectors, given `grad`.

    Where source and target are the same value, the gradient of the source includes that of the target.
    """

    step: Attend
    grad: int
    source: Produced | None
    target: Produced | None
    bonds: Produced | None


class GateGrad(NamedTuple):
    """Compute the gradients of a :class:`Gate` step's source and gates, each if it is wanted, given gradient `grad`."""

    step: Gate
    grad: int
    source: Produced | None
    gates: Produced | None


class AddGrad(NamedTuple):
    """Add gradient `grad` of a step's value to the gradient that the value added by the step has from later steps."""

    step: Linear | Finish | Expand
    grad: int
    source: Produced


class Product(NamedTuple):
    """The gradient of a weight, G^T x, and the gradient of a bias, the column sums of G.

    Attributes:
        grad: The number of the gradient G.
        source: The value x, or None without a weight.
        weight: The name of the weight, or None.
        bias: The name of the bias, or None.
    """

    grad: int
    source: int | None
    weight: str | None
    bias: str | None


class WeightGrads(NamedTuple):
    """Compute the gradients of all weights and biases of some layers."""

    products: tuple[Product, ...]


GradStep = (
    PoolGrad
    | FinishGrad
    | InputGrad
    | GatherGrad
    | NormalizeGrad
    | ExpandGrad
    | SpreadGrad
    | EdgeGrad
    | AttendGrad
    | GateGrad
    | AddGrad
    | WeightGrads
)
