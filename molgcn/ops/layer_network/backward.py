"""The steps of a network's backward pass, derived from the steps of its forward pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from molgcn.ops.layer_network.gradient_steps import (
    AddGrad,
    AttendGrad,
    EdgeGrad,
    ExpandGrad,
    FinishGrad,
    GateGrad,
    GatherGrad,
    GradStep,
    InputGrad,
    NormalizeGrad,
    PoolGrad,
    Produced,
    Product,
    SpreadGrad,
    WeightGrads,
)
from molgcn.ops.layer_network.program import Program, biases_without_effect
from molgcn.ops.layer_network.steps import (
    BONDS,
    Attend,
    EdgeStep,
    Expand,
    Finish,
    Gate,
    Gather,
    Linear,
    Spread,
    Step,
    X,
    values_made,
    values_read,
)

_LAYERS_WITH_ONE_KEPT = 2  # of so many layers one keeps the values of attention in a large batch: the others are computed again


class Backward(NamedTuple):
    """A network's backward pass.

    Attributes:
        steps: The steps in their order. A step of the forward pass among them computes its value again.
        read: The values of the forward pass that each step reads.
        gradients: The value that each gradient belongs to, by the gradient's number.
        of_x: The number of the gradient of x, or None if it is not wanted.
        of_bonds: The number of the gradient of the bonds' rows, or None if it is not wanted.
        kept: The values of the forward pass that the backward pass reads before it computes them again.
    """

    steps: tuple[GradStep | Step, ...]
    read: tuple[frozenset[int], ...]
    gradients: tuple[int, ...]
    of_x: int | None
    of_bonds: int | None
    kept: frozenset[int]

    @property
    def again(self) -> frozenset[int]:
        """The values that the backward pass computes again."""
        return frozenset(value for step in self.steps if isinstance(step, Step) for value in values_made(step))


@cache
def backward_of(
    program: Program,
    grad_x: bool,
    grad_bonds: bool,
    layers_together: int = 1,
    recompute: bool = False,
    batch_norms: tuple[str, ...] = (),
    attends_again: bool = False,
    by_round: bool = False,
) -> Backward:
    """Return the backward pass from the gradients of the pooled rows to the parameters and inputs.

    Args:
        program: The forward pass.
        grad_x: Whether the gradient of x is wanted.
        grad_bonds: Whether the gradient of the bonds' rows is wanted.
        layers_together: The number of layers whose weights and biases get their gradients in one step. The layers' own gradients are kept
            until then.
        recompute: Whether a layer's values are computed again from its input, so that only the layers' inputs are kept.
        batch_norms: The names of the norms with the statistics of the batch. Biases whose gradients these make zero are left out.
        attends_again: Whether the values of attention are computed again in every other layer, without `recompute` too.
        by_round: Whether a weight of several products has the gradient of each as soon as it can be computed, and adds them up.
    """
    wanted = {X: grad_x, BONDS: grad_bonds}
    weights = Counter(step.weight for step in program.steps if isinstance(step, Linear))
    at_once = frozenset(name for name, uses in weights.items() if by_round and uses > 1)
    builder = _Builder(program, wanted, biases_without_effect(program, batch_norms), at_once)
    starts = (0, *program.ends[:-1])
    for layers, (start, end) in enumerate(zip(reversed(starts), reversed(program.ends), strict=True), start=1):
        first = len(builder.steps)
        for step in reversed(program.steps[start:end]):
            builder.reverse(step)
        attends = attends_again and (len(starts) - layers) % _LAYERS_WITH_ONE_KEPT != _LAYERS_WITH_ONE_KEPT - 1
        again = [step for step in program.steps[start : end - 1] if recompute or (attends and isinstance(step, Attend))]
        builder.compute_again(again, first if recompute else builder.before_products(first))
        if layers % layers_together == 0 or layers == len(starts):
            builder.end_layers()
    for value in (X, BONDS):
        builder.add_up(value)
    read = tuple(builder.read_by(step) for step in builder.steps)
    of_x, of_bonds = builder.have.get(X), builder.have.get(BONDS)
    found = Backward(tuple(builder.steps), read, tuple(builder.gradients), of_x, of_bonds, frozenset[int]().union(*read))
    return found._replace(kept=found.kept - found.again)


class _Builder:
    """Builds the backward steps one by one."""

    def __init__(self, program: Program, wanted: dict[int, bool], left_out: frozenset[str], at_once: frozenset[str]) -> None:
        self.steps: list[GradStep | Step] = []
        self.gradients: list[int] = []
        self.have: dict[int, int] = {}  # the gradient of each value so far
        self._outs, self._takes_maxima = program.outs, program.pool == "max"
        self._products: list[Product] = []
        self._left_out, self._at_once, self._rows = left_out, at_once, program.values
        self._makers = {step.out: step for step in program.steps}
        self._readers: dict[int, list[Step]] = {}
        self._ends_of_gates: dict[int, Finish] = {}  # that wait for the gates' other gradient, so that one launch can compute both
        self._sums: dict[int, tuple[Linear | Finish | Expand, int]] = {}  # that wait for the next gradient of the value
        self._gates = {step.gates for step in program.steps if isinstance(step, Gate)}
        self._needs = dict(wanted)
        for step in program.steps:
            read = list(values_read(step))
            for value in read:
                self._readers.setdefault(value, []).append(step)
            learns = isinstance(step, Linear | Attend) or (isinstance(step, Finish) and step.norm is not None)
            if isinstance(step, Gather):
                learns = step.bias is not None or step.train_eps
            self._needs[step.out] = learns or any(self._needs[value] for value in read)

    def reverse(self, step: Step) -> None:
        """Add the backward steps from the gradient of a step's value to the gradients of the values that it reads."""
        if not self._needs[step.out]:
            return
        if isinstance(step, Finish) and step.source in self._gates and step.source not in self._ends_of_gates:
            self._ends_of_gates[step.source] = step
            return
        if isinstance(step, Gate) and step.gates in self._ends_of_gates:
            self.reverse(self._ends_of_gates[step.gates])
        self.add_up(step.out)
        if step.out in self._outs:
            self.steps.append(PoolGrad(self._outs.index(step.out), self._produced(None, step.out)))
        grad = self.have[step.out]
        if isinstance(step, Gather):
            return self._reverse_gather(step, grad)
        if isinstance(step, Expand):
            return self._reverse_expand(step, grad)
        if isinstance(step, Gate):
            return self.steps.append(GateGrad(step, grad, self._wanted(step, step.source), self._wanted(step, step.gates)))
        if isinstance(step, Attend):
            return self._reverse_attention(step, grad)
        if isinstance(step, Spread):
            return self.steps.append(SpreadGrad(step, grad, self._produced(step, step.source)))
        if isinstance(step, EdgeStep):
            return self.steps.append(EdgeGrad(step, grad, self._produced(step, step.source)))
        if isinstance(step, Linear):
            self._products.append(Product(grad, step.source, step.weight, None if step.bias in self._left_out else step.bias))
        makes_gradients = isinstance(step, Finish) and step.norm is not None
        if self._needs[step.source] or makes_gradients:
            source = self._produced(step, step.source)
            of = InputGrad if isinstance(step, Linear) else FinishGrad if isinstance(step, Finish) else NormalizeGrad
            self.steps.append(of(step, grad, source))  # type: ignore[arg-type]
        if isinstance(step, Linear) and step.weight in self._at_once:
            self.end_layers()
        if isinstance(step, (Linear, Finish)) and step.add is not None:
            self._hand_on(step, step.add, grad)

    def _hand_on(self, step: Linear | Finish | Expand, value: int, grad: int) -> None:
        """Let the gradient of a step's value be that of a value that the step adds, or a part of it."""
        if not self._needs[value]:
            return
        if value not in self.have:
            self.have[value] = grad
            return
        self.add_up(value)
        self._sums[value] = step, grad

    def add_up(self, value: int) -> None:
        """Add the step that adds the gradient which a value has been handed on to what it had, if there is one."""
        if value in self._sums:
            step, grad = self._sums.pop(value)
            self.steps.append(AddGrad(step, grad, self._produced(step, value)))

    def _reverse_expand(self, step: Expand, grad: int) -> None:
        edges = step.bonds is not None and self._rows[step.bonds].rows == "edges"
        bonds = None if edges else step.bonds
        made = [self._wanted(step, each) for each in (step.source, bonds, step.target)]
        self.steps.append(ExpandGrad(step, grad, *made))
        if edges and step.bonds is not None:
            self._hand_on(step, step.bonds, grad)

    def _wanted(self, step: Step, value: int | None) -> Produced | None:
        """Return the gradient that a step computes of a value it reads, or None if that is not wanted."""
        return None if value is None or not self._needs[value] else self._produced(step, value)

    def _reverse_gather(self, step: Gather, grad: int) -> None:
        if step.bias is not None and step.bias not in self._left_out:
            self._products.append(Product(grad, None, None, step.bias))
        source, bonds = self._wanted(step, step.source), self._wanted(step, step.bonds)
        if source is not None or bonds is not None or step.train_eps:
            self.steps.append(GatherGrad(step, grad, source, bonds))

    def _reverse_attention(self, step: Attend, grad: int) -> None:
        if step.bias is not None and step.bias not in self._left_out:
            self._products.append(Product(grad, None, None, step.bias))
        values = (step.target, step.bonds, step.source)  # the source last: its gradient may include that of the target
        target, bonds, source = (None if each is None or not self._needs[each] else self._produced(step, each) for each in values)
        if target is not None and step.target == step.source:
            target = target._replace(mask=None)  # the gradient of the source is masked, which includes it
        self.steps.append(AttendGrad(step, grad, source, target, bonds))

    def _produced(self, step: Step | None, value: int) -> Produced:
        """Return the gradient of a value with what a step, or without one the pooling, contributes."""
        self.add_up(value)
        maker, first = self._makers.get(value), None if value in self._outs else self._readers[value][0]
        mask = maker if isinstance(maker, Linear) and maker.relu and step is first else None
        self.gradients.append(value)
        made = Produced(value, len(self.gradients) - 1, self.have.get(value), mask)
        self.have[value] = made.out
        return made

    def end_layers(self) -> None:
        """Add the step for the gradients of the weights and biases since the last call."""
        if self._products:
            self.steps.append(WeightGrads(tuple(self._products)))
        self._products = []

    def before_products(self, first: int) -> int:
        """Return the number of the first of the products right before step number `first`.

        A product that makes a gradient can leave the sums for the norm that is next, if the norm's input is there.
        """
        while first > 0 and isinstance(self.steps[first - 1], InputGrad | WeightGrads):
            first -= 1
        return first

    def compute_again(self, steps: Sequence[Step], first: int) -> None:
        """Add steps of a layer of the forward pass, before the backward steps from number `first` on, which need their values."""
        needed, again = set().union(*map(self.read_by, (*self.steps[first:], WeightGrads(tuple(self._products))))), list[Step]()
        for step in reversed(steps):
            if needed.intersection(values_made(step)):
                needed |= set(values_read(step))
                again.insert(0, step)
        self.steps[first:first] = again

    def read_by(self, step: GradStep | Step) -> frozenset[int]:
        """Return the values of the forward pass that a step reads."""
        if isinstance(step, Step):
            return frozenset(values_read(step))
        if isinstance(step, WeightGrads):
            return frozenset(product.source for product in step.products if product.source is not None)
        made = (getattr(step, name, None) for name in ("source", "target", "bonds", "gates"))
        read = {produced.value for produced in made if produced is not None and produced.mask is not None}
        if isinstance(step, PoolGrad):
            read |= {step.source.value} if self._takes_maxima else set()
        elif isinstance(step, FinishGrad | NormalizeGrad):
            read.add(step.step.source)
        elif isinstance(step, GateGrad):
            read |= {*values_read(step.step)}
        elif isinstance(step, AttendGrad):
            read |= {*values_read(step.step), step.step.softmax}
        elif isinstance(step, GatherGrad) and reads_source(step.step):
            read |= set(values_read(step.step)) | ({step.step.out} if step.step.aggr == "max" else set())
        return frozenset(read)


def reads_source(step: Gather) -> bool:
    """Return whether the gradients of a gather depend on its source."""
    return step.bonds is not None or step.aggr == "max" or step.train_eps
