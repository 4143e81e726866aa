"""Turn the steps of a pass into instructions on tiles of whole molecules, which `cuda/tile_network.cu` runs.

A tile holds one value in registers. Values that are still needed lie in slots in the tile's shared memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from molgcn.ops.layer_network.backward import Backward
from molgcn.ops.layer_network.gradient_steps import (
    FinishGrad,
    GatherGrad,
    GradStep,
    InputGrad,
    NormalizeGrad,
    PoolGrad,
    Produced,
    WeightGrads,
)
from molgcn.ops.layer_network.layouts import Ref
from molgcn.ops.layer_network.program import Program
from molgcn.ops.layer_network.steps import Finish, Gather, Linear, Step

_AHEAD = 2  # tasks between the request for rows of global memory and their use
_NOWHERE = Ref(True, -1)  # the gradient of a source that is not wanted


class Instruction(NamedTuple):
    """One instruction on a tile. x is the value in registers.

    Attributes:
        op: "load" and "store" move x from and to global memory, "put" and "take" to and from a slot. "add" adds a slot's rows to x.
            "sync" waits for all warps. "fetch" asks for rows of global memory that a later instruction reads. "gather" and its gradients
            read other rows of a slot; "pool" reads a slot. All others replace x.
        slot: The slot that it reads or writes.
        rows: The rows in global memory that it reads or writes.
        width: The number of columns of the result, or of `rows`.
        step: The step that the instruction is part of.
        produced: The bonds' gradient that it computes, or that its sums are.
        mask: The step that made the value that "mask" reads.
    """

    op: str
    slot: int = -1
    rows: Ref | None = None
    width: int = 0
    step: Step | GradStep | None = None
    produced: Produced | None = None
    mask: Linear | None = None


class TilePass(NamedTuple):
    """The instructions of one launch.

    Attributes:
        instructions: The instructions in their order.
        num_slots: The number of slots in shared memory.
        touched: The gradients, and the values computed again, in global memory that the launch or another for the same layers touches.
    """

    instructions: tuple[Instruction, ...]
    num_slots: int
    touched: frozenset[Ref] = frozenset()


class _Task(NamedTuple):
    """An instruction whose rows have no slots yet.

    Attributes:
        instruction: The instruction.
        x: The rows that it takes in registers.
        gathered: The rows that it gathers from; it reads those of other atoms too.
        out: The rows that are in registers afterwards.
        add: The rows that are added afterwards.
        mask: The value and the step whose relu's derivative multiplies the result.
    """

    instruction: Instruction
    x: Ref | None = None
    gathered: Ref | None = None
    out: Ref | None = None
    add: Ref | None = None
    mask: Produced | None = None

    @property
    def read(self) -> tuple[Ref, ...]:
        return tuple(ref for ref in (self.x, self.gathered, self.add) if ref is not None)


@cache
def forward_pass(program: Program, stored: frozenset[int]) -> TilePass:
    """Return the instructions of a forward pass, which stores some of its values in global memory."""
    tasks = [_forward_task(program, step) for step in program.steps if program.values[step.out].rows == "atoms"]
    tasks.append(_Task(Instruction("pool"), gathered=Ref(False, program.out)))
    widths = {Ref(False, number): value.width for number, value in enumerate(program.values)}
    return _Builder(tasks, widths, {Ref(False, number) for number in stored}).built()


def _forward_task(program: Program, step: Step) -> _Task:
    out, source, width = Ref(False, step.out), Ref(False, step.source), program.values[step.out].width
    if isinstance(step, Gather):
        return _Task(Instruction("gather", width=width, step=step), gathered=source, out=out)
    name = "linear" if isinstance(step, Linear) else "finish" if isinstance(step, Finish) else "normalize"
    add = getattr(step, "add", None)
    return _Task(Instruction(name, width=width, step=step), x=source, out=out, add=None if add is None else Ref(False, add))


@cache
def again_passes(program: Program, backward: Backward) -> tuple[TilePass, ...]:
    """Return the instructions that compute values again and store those that are read, one pass for each launch of a backward pass."""
    of_gradients = (read for step, read in zip(backward.steps, backward.read, strict=True) if not isinstance(step, Step))
    read = frozenset[int]().union(*of_gradients)
    widths = {Ref(False, number): value.width for number, value in enumerate(program.values)}
    passes = []
    for part in _parts(backward):
        steps = [step for step in part if isinstance(step, Step)]
        tasks = [_forward_task(program, step) for step in steps if program.values[step.out].rows == "atoms"]
        made = _Builder(tasks, widths, {Ref(False, value) for value in read}).built()
        values = {step.out for step in steps if step.out in read or program.values[step.out].rows == "bonds"}
        passes.append(made._replace(touched=frozenset(Ref(False, value) for value in values)))
    return tuple(passes)


def _parts(backward: Backward) -> list[list[GradStep | Step]]:
    """Return the steps of each launch, which ends with gradients of weights."""
    parts: list[list[GradStep | Step]] = [[]]
    for step in backward.steps:
        parts[-1].append(step)
        if isinstance(step, WeightGrads):
            parts.append([])
    return parts[:-1]


@cache
def backward_passes(program: Program, backward: Backward, *, coded: bool) -> tuple[TilePass, ...]:
    """Return the instructions of a backward pass, one launch for each of its :class:`WeightGrads` steps.

    Args:
        program: Its forward pass.
        backward: Its backward pass.
        coded: Whether the bonds' rows are a table of distinct bonds.
    """
    parts = [[step for step in part if not isinstance(step, Step)] for part in _parts(backward)]
    widths = {Ref(True, number): program.values[value].width for number, value in enumerate(backward.gradients)}
    widths |= {Ref(False, number): value.width for number, value in enumerate(program.values)}
    tasks = [list(_backward_tasks(program, part, coded=coded)) for part in parts]
    passes = []
    for number, part in enumerate(tasks):
        stored = {Ref(True, product.grad) for step in parts[number] if isinstance(step, WeightGrads) for product in step.products}
        stored |= {ref for later in tasks[number + 1 :] for task in later for ref in task.read if ref.gradient}
        stored |= set() if backward.of_x is None else {Ref(True, backward.of_x)}
        made = _Builder(part, widths, stored).built()
        refs = {each.rows for each in made.instructions if each.rows is not None and each.rows.gradient}
        of_bonds = {Ref(True, number) for step in parts[number] for number in _of_bonds(program, step)}
        passes.append(made._replace(touched=frozenset(refs | of_bonds)))
    return tuple(passes)


def _of_bonds(program: Program, step: GradStep) -> Iterator[int]:
    """Yield the bonds' gradients that a step reads or computes."""
    if isinstance(step, WeightGrads):
        return
    for produced in (step.source, getattr(step, "bonds", None)):
        if produced is not None and program.values[produced.value].rows == "bonds":
            yield produced.out
            if produced.add is not None:
                yield produced.add


def _backward_tasks(program: Program, steps: Iterable[GradStep], *, coded: bool) -> Iterator[_Task]:
    for step in steps:
        if isinstance(step, PoolGrad):
            yield _Task(Instruction("pool_grad"), out=Ref(True, step.source.out), mask=step.source)
        elif isinstance(step, GatherGrad):
            yield from _gather_grad_tasks(program, step, coded=coded)
        elif isinstance(step, FinishGrad | InputGrad | NormalizeGrad) and program.values[step.source.value].rows == "atoms":
            yield _backward_task(program, step)


def _backward_task(program: Program, step: FinishGrad | InputGrad | NormalizeGrad) -> _Task:
    name = "finish_grad" if isinstance(step, FinishGrad) else "linear" if isinstance(step, InputGrad) else "normalize_grad"
    rows = None if isinstance(step, InputGrad) else Ref(False, step.step.source)
    made = Instruction(name, rows=rows, width=program.values[step.source.value].width, step=step)
    return _ended(_Task(made, x=Ref(True, step.grad)), step.source)


def _gather_grad_tasks(program: Program, step: GatherGrad, *, coded: bool) -> Iterator[_Task]:
    forward, grad = step.step, Ref(True, step.grad)
    width, source = program.values[forward.source].width, Ref(False, forward.source)
    made = Instruction("gather_grad", rows=source if forward.bonds is not None else None, width=width, step=step)
    if forward.eps is not None and forward.train_eps:
        yield _Task(made._replace(op="eps_grad", rows=source), gathered=grad)
    if step.bonds is not None and coded:
        yield _Task(made._replace(op="table_grad", produced=step.bonds), gathered=grad)
    task = _Task(made._replace(produced=None if coded else step.bonds), gathered=grad)
    if step.source is not None:
        yield _ended(task, step.source)
    elif step.bonds is not None and not coded:
        yield task._replace(out=_NOWHERE)


def _ended(task: _Task, produced: Produced) -> _Task:
    add = None if produced.add is None else Ref(True, produced.add)
    return task._replace(out=Ref(True, produced.out), add=add, mask=produced)


class _Builder:
    """Assigns slots to the rows of tasks, and adds the instructions that move rows."""

    def __init__(self, tasks: Sequence[_Task], widths: dict[Ref, int], stored: set[Ref]) -> None:
        self._tasks, self._widths, self._stored = tasks, widths, stored
        self._made: list[Instruction] = []
        self._x: Ref | None = None  # the rows in registers
        self._slots: list[Ref | None] = []
        self._written: set[Ref] = set()  # to slots, since all warps have last waited for each other
        self._gathered: set[int] = set()  # slots that other warps may still read
        self._last = {ref: time for time, task in enumerate(tasks) for ref in task.read}

    def built(self) -> TilePass:
        """Return the instructions of all tasks."""
        for time, task in enumerate(self._tasks):
            if time + _AHEAD < len(self._tasks):
                self._fetch(self._tasks[time + _AHEAD])
            self._add(time, task)
        return TilePass(tuple(self._made), len(self._slots))

    def _add(self, time: int, task: _Task) -> None:
        for ref in (task.gathered, task.add):
            if ref is not None:
                self._in_slot(time, ref)
        if task.x is not None:
            self._in_registers(time, task.x)
        made = task.instruction
        if task.gathered is not None:
            if task.gathered in self._written:
                self._sync()
            made = made._replace(slot=self._slots.index(task.gathered))
        if task.out is not None:
            self._keep_x(time, task.x)
            self._x = task.out
        self._made.append(made)
        if made.op == "linear":  # begins as all warps have arrived
            self._written.clear()
            self._gathered.clear()
        if task.gathered is not None:
            self._gathered.add(made.slot)
        if task.add is not None:
            self._made.append(Instruction("add", self._slots.index(task.add)))
        if task.mask is not None and task.mask.mask is not None:
            value = Ref(False, task.mask.value)
            self._made.append(Instruction("mask", rows=value, width=self._widths[value], mask=task.mask.mask))
        self._slots = [ref if ref is not None and self._last[ref] > time else None for ref in self._slots]
        if task.out in self._stored:
            self._made.append(Instruction("store", rows=task.out, width=self._widths[task.out]))

    def _fetch(self, task: _Task) -> None:
        """Ask for the values of the forward pass that a task reads from global memory in a backward pass."""
        masked = None if task.mask is None or task.mask.mask is None else Ref(False, task.mask.value)
        for ref in (task.instruction.rows, masked):
            if ref is not None:
                self._made.append(Instruction("fetch", rows=ref, width=self._widths[ref]))

    def _in_registers(self, time: int, ref: Ref) -> None:
        if ref == self._x:
            return
        self._keep_x(time, None)
        self._x = ref
        if ref in self._slots:
            self._made.append(Instruction("take", self._slots.index(ref)))
        else:
            self._made.append(Instruction("load", rows=ref, width=self._widths[ref]))

    def _in_slot(self, time: int, ref: Ref) -> None:
        if ref not in self._slots:
            self._in_registers(time, ref)
            self._put(ref)

    def _keep_x(self, time: int, taken: Ref | None) -> None:
        """Put the rows in registers into a slot if they are needed after they have been `taken`."""
        ref = self._x
        if ref is not None and ref not in self._slots and self._last.get(ref, -1) >= time + (ref == taken):
            self._put(ref)

    def _put(self, ref: Ref) -> None:
        slot = self._slots.index(None) if None in self._slots else len(self._slots)
        if slot in self._gathered:
            self._sync()
        self._slots[slot : slot + 1] = [ref]
        self._written.add(ref)
        self._made.append(Instruction("put", slot))

    def _sync(self) -> None:
        self._made.append(Instruction("sync"))
        self._written.clear()
        self._gathered.clear()
