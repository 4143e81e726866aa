"""Where the values and gradients of a pass lie in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from molgcn.ops.layer_network.backward import Backward
from molgcn.ops.layer_network.gradient_steps import (
    AddGrad,
    EdgeGrad,
    ExpandGrad,
    FinishGrad,
    GateGrad,
    GatherGrad,
    GradStep,
    InputGrad,
    PoolGrad,
    WeightGrads,
)
from molgcn.ops.layer_network.memory import FEW_ATOMS, Layout, Span, lay_out, side_by_side, spans, stride_of
from molgcn.ops.layer_network.program import Program, first_products, masked_values, signed_values
from molgcn.ops.layer_network.steps import BONDS, Expand, Finish, Gate, Gather, Linear, Step, X, values_made, values_read

_LAYOUTS = 256  # the number of layouts that are remembered, since batches without padding have many sizes


class Ref(NamedTuple):
    """Rows of a pass: a value of the forward pass, or a gradient of the backward pass, by its number; or :func:`signs_of` a value."""

    gradient: bool
    number: int


def signs_of(value: int) -> Ref:
    """Return what stands for the signs that forward keeps of a value without its rows."""
    return Ref(False, ~value)


class Sizes(NamedTuple):
    """The numbers of rows of values.

    Attributes:
        atoms: The number of atoms, N.
        bonds: The number of rows of bonds, K or E.
        edges: The number of directed bonds, E.
        signs_alone: The values that have no rows in memory, but signs.
        summed: The values that have no memory, since the launch that computes them adds them to the next value.
        signs_kept: The values that forward has rows of, and keeps the signs of for backward: a byte for four numbers.
    """

    atoms: int
    bonds: int
    edges: int
    signs_alone: frozenset[int] = frozenset()
    summed: frozenset[int] = frozenset()
    signs_kept: frozenset[int] = frozenset()

    def numbers(self, program: Program, value: int) -> int:
        """Return how many numbers the rows of a value have in memory."""
        return 0 if value in self.signs_alone or value in self.summed else self.of_gradient(program, value)

    def of_gradient(self, program: Program, value: int) -> int:
        """Return how many numbers the rows of a value's gradient have in memory."""
        rows, width = program.values[value]
        return getattr(self, rows) * stride_of(width)

    def of_values(self, program: Program, values: Iterable[int]) -> dict[Ref, int]:
        """Return the sizes of values, except inputs that are read where they are. Those of `signed_values` have a bit for each number."""
        signed = signed_values(program)
        numbers = {Ref(False, value): self.numbers(program, value) for value in values if in_memory(program, value)}
        return {ref: size + self._signs(program, ref.number) if ref.number in signed else size for ref, size in numbers.items()}

    def _signs(self, program: Program, value: int) -> int:
        """Return the size of the signs of a value's rows, as `signs_of` in cuda/product_finish.cuh finds them."""
        rows, width = program.values[value]
        return -(-getattr(self, rows) // 8) * -(-width // 16) * 4


def in_memory(program: Program, value: int) -> bool:
    """Return whether a value needs memory of the pass: all but inputs whose width is a multiple of four."""
    return value > BONDS or program.values[value].width % 4 > 0


@lru_cache(maxsize=_LAYOUTS)
def saved_layout(program: Program, kept: frozenset[int], sizes: Sizes) -> Layout[Ref]:
    """Return the layout of the values that forward keeps for backward."""
    signs = {signs_of(value): sizes.of_gradient(program, value) // 16 for value in sizes.signs_kept}
    return side_by_side(sizes.of_values(program, sorted(kept)) | signs)


@lru_cache(maxsize=_LAYOUTS)
def scratch_layout(program: Program, kept: frozenset[int], sizes: Sizes) -> Layout[Ref]:
    """Return the layout of the values of a forward pass that are not saved."""
    made = sizes.of_values(program, (value for value in range(len(program.values)) if value not in kept))
    waits = [step.out in sizes.summed or _follows(step, following, sizes) for step, following in pairwise(program.steps)]
    touched = [{*_values(*values_read(step), *values_made(step))} for step in program.steps]
    for step, reader in first_products(program).items():
        touched[program.steps.index(reader)] |= touched[program.steps.index(step)]
    touched = _until_launched(touched, waits)
    return lay_out(spans(made, [_values(X, BONDS), *touched], until_end=_values(*program.outs)))


@lru_cache(maxsize=_LAYOUTS)
def backward_layout(program: Program, backward: Backward, sizes: Sizes, free: frozenset[int] = frozenset()) -> Layout[Ref]:
    """Return the layout of the gradients of a backward pass, and of the values that it computes again.

    A thread reads each number before it writes it. So the gradient of the input of a layer's end, and the sum of an earlier gradient and a
    gather's or pooling's, take the place of rows that their step reads and no later step does. Other gradients take the place of values
    that forward has kept, once nothing reads these any more.

    Args:
        program: The forward pass.
        backward: The backward pass.
        sizes: The numbers of rows of values.
        free: The values that forward has kept and that the pass may write over.
    """
    pairs = [*pairwise(backward.steps)]
    ends = [ends_edges(program, *pair) for pair in pairs]
    waits = [end or (_may_wait(*pair, sizes) and not ended) for pair, end, ended in zip(pairs, ends, [False, *ends], strict=False)]
    each = [_touched_in_backward(step, read) for step, read in zip(backward.steps, backward.read, strict=True)]
    last = {ref: time for time, refs in enumerate(each) for ref in refs}
    touched = _until_launched(each, waits)
    same: dict[Ref, Ref] = {}
    for time, step in enumerate(backward.steps):
        for out, taken in _in_place(step, backward.again):
            ended = next((ref for ref in taken if last[ref] == time), None)
            if ended is not None:
                same[out] = same.get(ended, ended)
    return _laid_out(program, backward, sizes, touched, same, free)


def launches_layout(program: Program, backward: Backward, sizes: Sizes, launches: Sequence[Iterable[Ref]]) -> Layout[Ref]:
    """Return the layout of the memory of a backward pass for launches on tiles that each touch some rows. All others get no memory.

    The gradient of a layer's end takes the place of the value that the end alone reads: a thread reads each number before it writes it.
    """
    of_gradients = (read for step, read in zip(backward.steps, backward.read, strict=True) if not isinstance(step, Step))
    readers, again = Counter(value for read in of_gradients for value in read), backward.again
    ends = (step for step in backward.steps if isinstance(step, FinishGrad) and step.step.source in again)
    same = {Ref(True, end.source.out): Ref(False, end.step.source) for end in ends if readers[end.step.source] == 1}
    return _laid_out(program, backward, sizes, launches, same)


def _laid_out(
    program: Program,
    backward: Backward,
    sizes: Sizes,
    touched: Sequence[Iterable[Ref]],
    same: Mapping[Ref, Ref],
    free: Iterable[int] = (),
) -> Layout[Ref]:
    """Return a layout in which some rows take over the memory of others, those that `same` has for them, or those of `free` values."""
    made = {Ref(True, number): sizes.of_gradient(program, value) for number, value in enumerate(backward.gradients)}
    made |= sizes.of_values(program, backward.again)
    outputs = [Ref(True, number) for number in (backward.of_x, backward.of_bonds) if number is not None]
    firsts = [{same.get(ref, ref) for ref in refs} for refs in touched]
    needed = spans(made, firsts, until_end=[same.get(ref, ref) for ref in outputs])
    over = _over(needed, {Ref(False, value): sizes.numbers(program, value) for value in free}, touched)
    layout = lay_out({ref: span for ref, span in needed.items() if ref not in over})
    shared = {ref: layout.offsets[first] for ref, first in same.items() if first in layout.offsets}
    shared_over = {ref: over[first] for ref, first in same.items() if first in over}
    return Layout({**layout.offsets, **shared}, layout.size, {**over, **shared_over})


def _over(needed: Mapping[Ref, Span], free: Mapping[Ref, int], touched: Sequence[Iterable[Ref]]) -> dict[Ref, Ref]:
    """Return the gradients that take the place of values, of the sizes that `free` has, each after the last step that touches it."""
    busy = {value: max((time for time, refs in enumerate(touched) if value in refs), default=-1) for value in free}
    over = dict[Ref, Ref]()
    for ref, span in sorted(needed.items(), key=lambda item: item[1].first):
        places = [value for value, last in busy.items() if last < span.first and free[value] >= span.size]
        if ref.gradient and places and span.last < len(touched):
            over[ref] = min(places, key=lambda value: free[value])
            busy[over[ref]] = span.last
    return over


def _in_place(step: GradStep | Step, again: frozenset[int]) -> Iterator[tuple[Ref, list[Ref]]]:
    """Yield gradients that a step makes, each with rows whose place it may take."""
    if isinstance(step, FinishGrad):
        sources = [Ref(False, step.step.source)] if step.step.source in again else []
        yield Ref(True, step.source.out), [*sources, Ref(True, step.grad)]
    if isinstance(step, PoolGrad) and step.source.add is not None:
        yield Ref(True, step.source.out), [Ref(True, step.source.add)]
    if isinstance(step, AddGrad):
        yield Ref(True, step.source.out), [Ref(True, number) for number in (step.grad, step.source.add) if number is not None]
    if isinstance(step, GatherGrad):
        for produced in (step.source, step.bonds):
            if produced is not None and produced.add not in (None, step.grad):  # neighbours read the gradient of the output
                yield Ref(True, produced.out), [Ref(True, produced.add)]
    if isinstance(step, GateGrad) and step.gates is not None and step.gates.add is not None:
        yield Ref(True, step.gates.out), [Ref(True, step.gates.add)]


def _follows(step: Step, following: Step, sizes: Sizes) -> bool:
    """Return whether a step of the forward pass may be computed together with the next one, or at the same time."""
    if isinstance(step, Expand) and isinstance(following, Gate):
        return following.gates == step.out
    if isinstance(step, Linear) and isinstance(following, Linear) and (sizes.atoms <= FEW_ATOMS or following.source == step.source):
        return True
    waiting = (Expand, Finish, Gather, Linear) if sizes.atoms <= FEW_ATOMS else (Expand, Finish, Linear)
    return isinstance(step, waiting) and following.source == step.out


def _may_wait(step: GradStep | Step, following: GradStep | Step, sizes: Sizes) -> bool:
    """Return whether a step of a backward pass may be computed together with the next one, or at the same time."""
    if isinstance(step, Step):
        return step.out in sizes.summed
    if isinstance(step, GateGrad):
        return isinstance(following, ExpandGrad) and following.step.out == step.step.gates
    if isinstance(step, InputGrad) and isinstance(following, InputGrad):
        return sizes.atoms <= FEW_ATOMS or following.grad in (step.grad, step.source.out) or following.source.add == step.source.out
    if isinstance(step, AddGrad) and isinstance(following, FinishGrad):
        return following.source.add == step.source.out
    if isinstance(step, FinishGrad) and isinstance(following, GateGrad):
        return following.gates is not None and following.gates.add == step.source.out
    if not isinstance(step, (FinishGrad, InputGrad)) or not isinstance(following, (ExpandGrad, FinishGrad, InputGrad)):
        return False
    return following.grad == step.source.out and (not isinstance(following, FinishGrad) or following.step.norm is None)


def ends_edges(program: Program, step: GradStep | Step, following: GradStep | Step) -> bool:
    """Return whether the launch of a step on rows of edges can take its result through a layer's end, a relu after a product, too."""
    if not isinstance(step, EdgeGrad) or not isinstance(following, FinishGrad) or following.grad != step.source.out:
        return False
    plain = step.source.add is None and following.source.add is None and following.source.mask is None
    return plain and following.step.source in masked_values(program)


def _until_launched(touched: list[set[Ref]], waits: Sequence[bool]) -> list[set[Ref]]:
    """Return what steps touch, where a step that `waits` may be computed together with the next one."""
    for number, late in enumerate(waits):
        if late:
            touched[number + 1] |= touched[number]
    return touched


def _touched_in_backward(step: GradStep | Step, read: frozenset[int]) -> set[Ref]:
    if isinstance(step, Step):
        return set(_values(*values_read(step), *values_made(step)))
    return {*_values(*read), *(Ref(True, number) for number in _gradients(step))}


def _values(*values: int) -> list[Ref]:
    return [Ref(False, value) for value in values]


def _gradients(step: GradStep) -> Iterator[int]:
    if isinstance(step, WeightGrads):
        yield from (product.grad for product in step.products)
        return
    if not isinstance(step, PoolGrad):
        yield step.grad
    for produced in (getattr(step, name, None) for name in ("source", "bonds", "target", "gates")):
        if produced is not None:
            yield produced.out
            if produced.add is not None:
                yield produced.add
