"""Where the values and gradients of a pass lie in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from molgcn.ops.layer_network.backward import Backward, FinishGrad, GatherGrad, GradStep, InputGrad, WeightGrads
from molgcn.ops.layer_network.memory import Layout, lay_out, side_by_side, spans, stride_of
from molgcn.ops.layer_network.program import Program
from molgcn.ops.layer_network.steps import BONDS, Finish, Linear, Step, X

_LAYOUTS = 256  # the number of layouts that are remembered, since batches without padding have many sizes


class Ref(NamedTuple):
    """Rows of a pass: a value of the forward pass, or a gradient of the backward pass, by its number."""

    gradient: bool
    number: int


class Sizes(NamedTuple):
    """The numbers of rows of values.

    Attributes:
        atoms: The number of atoms, N.
        bonds: The number of rows of bonds, K or E.
    """

    atoms: int
    bonds: int

    def numbers(self, program: Program, value: int) -> int:
        """Return how many numbers the rows of a value have in memory."""
        rows, width = program.values[value]
        return getattr(self, rows) * stride_of(width)

    def of_values(self, program: Program, values: Iterable[int]) -> dict[Ref, int]:
        """Return the sizes of values, except inputs that are read where they are. Behind relu's rows there is a bit for each number."""
        after_relu = {step.out for step in program.steps if isinstance(step, Linear) and step.relu}
        numbers = {Ref(False, value): self.numbers(program, value) for value in values if in_memory(program, value)}
        return {ref: size + self._signs(program, ref.number) if ref.number in after_relu else size for ref, size in numbers.items()}

    def _signs(self, program: Program, value: int) -> int:
        """Return the size of the signs of a value's rows, as `signs_of` in cuda/product_rows.cu finds them."""
        rows, width = program.values[value]
        return -(-getattr(self, rows) // 8) * -(-width // 16) * 4


def in_memory(program: Program, value: int) -> bool:
    """Return whether a value needs memory of the pass: all but inputs whose width is a multiple of four."""
    return value > BONDS or program.values[value].width % 4 > 0


@lru_cache(maxsize=_LAYOUTS)
def saved_layout(program: Program, kept: frozenset[int], sizes: Sizes) -> Layout[Ref]:
    """Return the layout of the values that forward keeps for backward."""
    return side_by_side(sizes.of_values(program, sorted(kept)))


@lru_cache(maxsize=_LAYOUTS)
def scratch_layout(program: Program, kept: frozenset[int], sizes: Sizes) -> Layout[Ref]:
    """Return the layout of the values of a forward pass that are not saved."""
    made = sizes.of_values(program, (value for value in range(len(program.values)) if value not in kept))
    waits = [isinstance(step, (Finish, Linear)) and following.source == step.out for step, following in pairwise(program.steps)]
    touched = _until_launched([{*_values(*_touched(step))} for step in program.steps], waits)
    return lay_out(spans(made, [_values(X, BONDS), *touched], until_end=_values(program.out)))


@lru_cache(maxsize=_LAYOUTS)
def backward_layout(program: Program, backward: Backward, sizes: Sizes) -> Layout[Ref]:
    """Return the layout of the gradients of a backward pass, and of the values that it computes again.

    A gather adds an earlier gradient of its source to its own in place: a thread reads each number before it writes it.
    """
    waits = [
        isinstance(step, (FinishGrad, InputGrad)) and isinstance(following, InputGrad) and following.grad == step.source.out
        for step, following in pairwise(backward.steps)
    ]
    each = [_touched_in_backward(step, read) for step, read in zip(backward.steps, backward.read, strict=True)]
    touched = [{Ref(True, 0)}, *_until_launched(each, waits)]
    last = {ref: time for time, refs in enumerate(touched) for ref in refs}
    same: dict[Ref, Ref] = {}
    for time, step in enumerate(backward.steps, start=1):
        for produced in (step.source, step.bonds) if isinstance(step, GatherGrad) else ():
            if produced is not None and produced.add is not None and last[Ref(True, produced.add)] == time:
                added = Ref(True, produced.add)
                same[Ref(True, produced.out)] = same.get(added, added)
    return _laid_out(program, backward, sizes, touched, same)


def launches_layout(program: Program, backward: Backward, sizes: Sizes, launches: Sequence[Iterable[Ref]]) -> Layout[Ref]:
    """Return the layout of the memory of a backward pass for launches on tiles that each touch some rows. All others get no memory.

    The gradient of a layer's end takes the place of the value that the end alone reads: a thread reads each number before it writes it.
    """
    of_gradients = (read for step, read in zip(backward.steps, backward.read, strict=True) if not isinstance(step, Step))
    readers, again = Counter(value for read in of_gradients for value in read), backward.again
    ends = (step for step in backward.steps if isinstance(step, FinishGrad) and step.step.source in again)
    same = {Ref(True, end.source.out): Ref(False, end.step.source) for end in ends if readers[end.step.source] == 1}
    return _laid_out(program, backward, sizes, launches, same)


def _laid_out(program: Program, backward: Backward, sizes: Sizes, touched: Sequence[Iterable[Ref]], same: Mapping[Ref, Ref]) -> Layout[Ref]:
    """Return a layout in which some rows take over the memory of others, those that `same` has for them."""
    made = {Ref(True, number): sizes.numbers(program, value) for number, value in enumerate(backward.gradients)}
    made |= sizes.of_values(program, backward.again)
    outputs = [Ref(True, number) for number in (backward.of_x, backward.of_bonds) if number is not None]
    firsts = [{same.get(ref, ref) for ref in refs} for refs in touched]
    layout = lay_out(spans(made, firsts, until_end=[same.get(ref, ref) for ref in outputs]))
    shared = {ref: layout.offsets[first] for ref, first in same.items() if first in layout.offsets}
    return layout._replace(offsets={**layout.offsets, **shared})


def _until_launched(touched: list[set[Ref]], waits: Sequence[bool]) -> list[set[Ref]]:
    """Return what steps touch, where a step that `waits` may be computed together with the next one."""
    for number, late in enumerate(waits):
        if late:
            touched[number + 1] |= touched[number]
    return touched


def _touched(step: Step) -> Iterator[int]:
    for name in ("source", "out", "bonds", "add"):
        value = getattr(step, name, None)
        if value is not None:
            yield value


def _touched_in_backward(step: GradStep | Step, read: frozenset[int]) -> set[Ref]:
    if isinstance(step, Step):
        return set(_values(*_touched(step)))
    return {*_values(*read), *(Ref(True, number) for number in _gradients(step))}


def _values(*values: int) -> list[Ref]:
    return [Ref(False, value) for value in values]


def _gradients(step: GradStep) -> Iterator[int]:
    if isinstance(step, WeightGrads):
        yield from (product.grad for product in step.products)
        return
    yield step.grad
    for produced in (step.source, getattr(step, "bonds", None)):
        if produced is not None:
            yield produced.out
            if produced.add is not None:
                yield produced.add
