"""The steps of a network's backward pass, from those of its forward pass."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from molgcn.ops.layer_network.program import Program
from molgcn.ops.layer_network.steps import BONDS, Finish, Gather, Linear, Normalize, Step, X


class Produced(NamedTuple):
    """The gradient that a backward step makes of a value: what follows from the step, plus `add`, times the derivative of `mask`.

    Attributes:
        value: the value.
        out: number of the gradient.
        add: gradient of the same value from steps further on, or None.
        mask: step that made the value with relu, and perhaps dropout: the result is then the gradient of what relu was given, which is 0
            where the value is 0 and else multiplied by :math:`1 / (1 - p)` with dropout; None: no relu.
    """

    value: int
    out: int
    add: int | None = None
    mask: Linear | None = None


class FinishGrad(NamedTuple):
    """Gradients of a :class:`Finish`, of its source and of its norm's weight and bias, from the gradient number `grad`."""

    step: Finish
    grad: int
    source: Produced


class InputGrad(NamedTuple):
    """The gradient of the source of a :class:`Linear`, from number `grad`, of what relu was given where the step has relu."""

    step: Linear
    grad: int
    source: Produced


class GatherGrad(NamedTuple):
    """Gradients of a :class:`Gather`, of its source, its bonds and its eps, each where it is wanted, from number `grad`."""

    step: Gather
    grad: int
    source: Produced | None
    bonds: Produced | None


class NormalizeGrad(NamedTuple):
    """The gradient of the source of a :class:`Normalize`, from number `grad`."""

    step: Normalize
    grad: int
    source: Produced


class Product(NamedTuple):
    """Gradients of a matrix, G^T x, and of a bias, the columns' sums of G.

    Attributes:
        grad: number of G.
        source: value x, or None where there is no matrix.
        weight: name of the matrix, or None.
        bias: name of the bias, or None.
    """

    grad: int
    source: int | None
    weight: str | None
    bias: str | None


class WeightGrads(NamedTuple):
    """The gradients of all matrices and biases of some layers."""

    products: tuple[Product, ...]


GradStep = FinishGrad | InputGrad | GatherGrad | NormalizeGrad | WeightGrads


class Backward(NamedTuple):
    """A network's backward pass, which begins with the gradient number 0, of the value that is pooled.

    Attributes:
        steps: in their order.
        gradients: the value that each gradient is of, by its number.
        mask: step that made the pooled value with relu, or None: gradient 0 includes its derivative, see :class:`Produced`.
        of_x: number of the gradient of x, or None where it is not wanted.
        of_bonds: number of the gradient of the bonds' rows, or None where it is not wanted.
        kept: values that the pass reads.
    """

    steps: tuple[GradStep, ...]
    gradients: tuple[int, ...]
    mask: Linear | None
    of_x: int | None
    of_bonds: int | None
    kept: frozenset[int]


@cache
def backward_of(program: Program, grad_x: bool, grad_bonds: bool, train_eps: bool, keep_out: bool, layers_together: int = 1) -> Backward:
    """Return the steps that take the gradient of the last value back to the parameters and inputs.

    Args:
        program: the forward pass.
        grad_x: whether the gradient of x is wanted.
        grad_bonds: whether the gradient of the bonds' rows is wanted.
        train_eps: whether the gradients of eps are wanted.
        keep_out: whether the pooling reads the last value again.
        layers_together: layers whose matrices and biases get their gradients in one step, for which theirs are kept as long.
    """
    wanted = {X: grad_x, BONDS: grad_bonds}
    builder = _Builder(program, wanted, train_eps)
    starts = (0, *program.ends[:-1])
    for layers, (start, end) in enumerate(zip(reversed(starts), reversed(program.ends), strict=True), start=1):
        for step in reversed(program.steps[start:end]):
            builder.reverse(step)
        if layers % layers_together == 0 or layers == len(starts):
            builder.end_layers()
    maker = program.steps[-1]
    mask = maker if isinstance(maker, Linear) and maker.relu else None
    kept = _kept(builder.steps) | ({program.out} if mask or keep_out else set())
    of_x, of_bonds = builder.have.get(X), builder.have.get(BONDS)
    return Backward(tuple(builder.steps), tuple(builder.gradients), mask, of_x, of_bonds, kept)


class _Builder:
    """The backward steps so far."""

    def __init__(self, program: Program, wanted: dict[int, bool], train_eps: bool) -> None:
        self.steps: list[GradStep] = []
        self.gradients = [program.out]
        self.have = {program.out: 0}  # the gradient of each value so far
        self._products: list[Product] = []
        self._train_eps = train_eps
        self._makers = {step.out: step for step in program.steps}
        self._readers: dict[int, list[Step]] = {}
        self._needs = dict(wanted)
        for step in program.steps:
            read = list(_read(step))
            for value in read:
                self._readers.setdefault(value, []).append(step)
            learns = isinstance(step, Linear) or (isinstance(step, Finish) and step.norm is not None)
            if isinstance(step, Gather):
                learns = step.bias is not None or (train_eps and step.eps is not None)
            self._needs[step.out] = learns or any(self._needs[value] for value in read)

    def reverse(self, step: Step) -> None:
        """Add what takes the gradient of a step's value to those of what it reads."""
        if not self._needs[step.out]:
            return
        grad = self.have[step.out]
        if isinstance(step, Gather):
            return self._reverse_gather(step, grad)
        if isinstance(step, Linear):
            self._products.append(Product(grad, step.source, step.weight, step.bias))
        if isinstance(step, (Linear, Finish)) and step.add is not None and self._needs[step.add]:
            assert step.add not in self.have, "the steps that end a layer or a block come last among the readers of what they add"
            self.have[step.add] = grad
        makes_gradients = isinstance(step, Finish) and step.norm is not None
        if self._needs[step.source] or makes_gradients:
            source = self._produced(step, step.source)
            kind = InputGrad if isinstance(step, Linear) else FinishGrad if isinstance(step, Finish) else NormalizeGrad
            self.steps.append(kind(step, grad, source))  # type: ignore[arg-type]

    def _reverse_gather(self, step: Gather, grad: int) -> None:
        if step.bias is not None:
            self._products.append(Product(grad, None, None, step.bias))
        source = self._produced(step, step.source) if self._needs[step.source] else None
        bonds = self._produced(step, step.bonds) if step.bonds is not None and self._needs[step.bonds] else None
        if source is not None or bonds is not None or (self._train_eps and step.eps is not None):
            self.steps.append(GatherGrad(step, grad, source, bonds))

    def _produced(self, step: Step, value: int) -> Produced:
        maker, first = self._makers.get(value), self._readers[value][0]
        mask = maker if isinstance(maker, Linear) and maker.relu and step is first else None
        self.gradients.append(value)
        made = Produced(value, len(self.gradients) - 1, self.have.get(value), mask)
        self.have[value] = made.out
        return made

    def end_layers(self) -> None:
        """Add the gradients of the matrices and biases of the layers since the last call."""
        if self._products:
            self.steps.append(WeightGrads(tuple(self._products)))
        self._products = []


def _read(step: Step) -> Iterator[int]:
    """Yield the values that a step reads."""
    yield step.source
    for value in (getattr(step, "bonds", None), getattr(step, "add", None)):
        if value is not None:
            yield value


def _kept(steps: list[GradStep]) -> frozenset[int]:
    """Return the values that backward steps read."""
    kept: set[int | None] = set()
    for step in steps:
        if isinstance(step, WeightGrads):
            kept |= {product.source for product in step.products}
            continue
        for produced in (step.source, getattr(step, "bonds", None)):
            if produced is not None and produced.mask is not None:
                kept.add(produced.value)
        forward = step.step
        if isinstance(forward, (Finish, Normalize)):
            kept.add(forward.source)
        elif isinstance(forward, Gather) and (forward.bonds is not None or forward.aggr == "max" or forward.eps is not None):
            kept |= {forward.source, forward.bonds, forward.out if forward.aggr == "max" else None}
    return frozenset(value for value in kept if value is not None)
