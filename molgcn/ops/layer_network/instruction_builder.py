"""Turn the steps of a pass into instructions on tiles of whole molecules, which `cpu/tile_pass.hpp` runs.

The instructions are cut into segments wherever batch norm needs all tiles.
"""

from __future__ import annotations

from collections.abc import Iterator

from molgcn.ops.layer_network.backward import Backward
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
    PoolGrad,
    Produced,
    SpreadGrad,
    WeightGrads,
)
from molgcn.ops.layer_network.instructions import Instruction, Keys, Op, Segment
from molgcn.ops.layer_network.program import Program
from molgcn.ops.layer_network.steps import (
    ACTIVATIONS,
    AGGREGATIONS,
    Attend,
    AverageDirections,
    EdgeStep,
    Expand,
    Finish,
    Gate,
    Gather,
    Linear,
    Spread,
    Step,
    SumIncoming,
    SumNonBacktracking,
    values_read,
)

_SAME = {SumNonBacktracking: Op.SUM_NON_BACKTRACKING, AverageDirections: Op.AVERAGE_DIRECTIONS}  # forward and backward
_OF_EDGES = {SumIncoming: Op.SUM_INCOMING, **_SAME}
_GRAD_OF_EDGES = {SumIncoming: Op.SUM_INCOMING_GRAD, **_SAME}


class Builder:
    """Builds the instructions of a pass.

    Args:
        program: The network.
        keys: The numbers of all rows.
        coded: Whether the graph has codes of bonds, so that the bonds' rows are a table of distinct bonds.
        batch_statistics: Whether batch norms use the statistics of the batch.
    """

    def __init__(self, program: Program, keys: Keys, *, coded: bool, batch_statistics: bool) -> None:
        self.table_widths: list[int] = []
        self._program = program
        self._keys = keys
        self._coded = coded
        self._parameters = {name: index for index, name in enumerate(program.parameters)}
        self._attends = [step for step in program.steps if isinstance(step, Attend)]
        self._norms = {name: index for index, name in enumerate(program.norms)}
        self._batch_norms = {self._norms[name] for name in program.batch_norms} if batch_statistics else set()
        self._segments: list[Segment] = []
        self._tiles: list[Instruction] = []
        self._table: list[Instruction] = []
        self._products: dict[int, list[Instruction]] = {}
        self._makers = {step.out: step for step in program.steps}
        self._present: set[int] = set()

    def forward(self) -> tuple[Segment, ...]:
        """Return the segments of the forward pass."""
        self._makers = {}
        for step in self._program.steps:
            self._emit(*self._forward(step))
            if step.out in self._program.outs:
                self._emit(Instruction(Op.POOL, source=step.out, table=self._program.outs.index(step.out)))
        tables = [Segment((*self._table, *self._stored_tables()), table=True)] if self._coded else []
        return *tables, *self._segments, Segment(tuple(self._tiles))

    def backward(self, backward: Backward) -> tuple[Segment, ...]:
        """Return the segments of the backward pass."""
        for step in backward.steps:
            for product in step.products if isinstance(step, WeightGrads) else ():
                made = Instruction(Op.PRODUCT, source=_or_none(product.source), grad=self._keys.gradient(product.grad))
                made = made._replace(weight=self._number(product.weight), bias=self._number(product.bias))
                self._products.setdefault(made.grad, []).append(made)
        for step in backward.steps:
            self._emit(*self._backward(step))
        tables = [Segment(tuple(self._stored_tables()), table=True)] if self._coded else []
        last = [Segment(tuple(self._table), table=True)] if self._coded else []
        return *tables, *self._segments, Segment(tuple(self._tiles)), *last

    def _emit(self, *instructions: Instruction) -> None:
        """Add instructions, each followed by the weight gradients of its result, and end the segment if tiles must wait for all others."""
        for made in instructions:
            values = [self._keys.value(rows) for rows in (made.source, made.out) if rows >= 0]
            to = self._table if any(map(self._of_table, values)) else self._tiles
            for each in (made, *(product for rows in made.written for product in self._products.pop(rows, ()))):
                for rows in each.read:
                    self._make_again(rows)
                to.append(each)
            if made.op in (Op.MOMENTS, Op.NORM_SUMS) and made.norm in self._batch_norms:
                self._segments.append(Segment(tuple(self._tiles), made.norm))
                self._tiles = []
                self._present.clear()

    def _make_again(self, rows: int) -> None:
        """In a backward pass, compute a value again if that is faster than writing it to memory and reading it back."""
        step = self._makers.get(rows)
        if rows in self._present or step is None or isinstance(step, Linear | Attend):
            return
        if isinstance(step, Finish) and (step.dropout is not None or self._adds(step.add)):
            return
        if isinstance(step, Expand) and sum(isinstance(self._makers.get(value), Linear) for value in values_read(step)) > 1:
            return  # several products would be kept in place of it
        self._present.add(rows)
        *_, made = self._forward(step)  # without MOMENTS, since a batch norm's moments are known
        for read in made.read:
            self._make_again(read)
        self._tiles.append(made)

    def _adds(self, value: int | None) -> bool:
        """Return whether a value adds an earlier value. Computing it again could then go back through all earlier layers."""
        step = self._makers.get(-1 if value is None else value)
        return isinstance(step, Finish) and step.add is not None

    def _stored_tables(self) -> Iterator[Instruction]:
        """Yield the instructions that store the tables that gathers read."""
        of_steps = (step.source if isinstance(step, Spread) else getattr(step, "bonds", None) for step in self._program.steps)
        for value in sorted({value for value in of_steps if value is not None and self._of_table(value)}):
            yield Instruction(Op.STORE, source=value, memory=self._keys.table(value))

    def _forward(self, step: Step) -> Iterator[Instruction]:
        if isinstance(step, Gather):
            made = Instruction(Op.GATHER, step.out, step.source, weight=self._number(step.eps), bias=self._number(step.bias))
            yield self._with_bonds(made, step)
        elif isinstance(step, Linear):
            made = Instruction(Op.LINEAR, step.out, step.source, weight=self._number(step.weight), bias=self._number(step.bias))
            yield made._replace(add=_or_none(step.add), activation=int(step.relu), site=_or_none(step.dropout))
        elif isinstance(step, Finish):
            made = self._finish(Op.FINISH, step)
            if made.norm in self._batch_norms:
                yield Instruction(Op.MOMENTS, source=step.source, norm=made.norm)
            yield made._replace(out=step.out, add=_or_none(step.add))
        elif isinstance(step, Expand):
            yield self._bonds_of(Instruction(Op.EXPAND, step.out, step.source, target=_or_none(step.target)), step.bonds)
        elif isinstance(step, Spread):
            yield self._bonds_of(Instruction(Op.EXPAND, step.out), step.source)
        elif isinstance(step, Gate):
            yield Instruction(Op.GATE, step.out, step.source, bonds=step.gates)
        elif isinstance(step, EdgeStep):
            yield Instruction(_OF_EDGES[type(step)], step.out, step.source)
        elif isinstance(step, Attend):
            yield self._attend(Op.ATTEND, step)._replace(out=step.out, second=step.softmax, bias=self._number(step.bias))
        else:
            yield Instruction(Op.NORMALIZE, step.out, step.source)

    def _backward(self, step: GradStep | Step) -> Iterator[Instruction]:
        if isinstance(step, WeightGrads | Step):
            return
        if isinstance(step, PoolGrad):
            source = step.source.value if self._program.pool == "max" else -1
            yield self._produced(Instruction(Op.POOL_GRAD, source=source, table=step.place), step.source)
            return
        grad = self._keys.gradient(step.grad)
        if isinstance(step, GatherGrad):
            yield from self._gather_grad(step, grad)
        elif isinstance(step, ExpandGrad):
            yield from self._expand_grad(step, grad)
        elif isinstance(step, AttendGrad):
            yield from self._attend_grad(step, grad)
        elif isinstance(step, SpreadGrad):
            made = self._bonds_of(Instruction(Op.EXPAND_BONDS_GRAD, grad=grad), step.step.source)
            yield from self._bonds_grad(made, step.source)
        elif isinstance(step, GateGrad):
            yield from self._gate_grad(step, grad)
        elif isinstance(step, EdgeGrad | AddGrad):
            op = Op.ADD_GRAD if isinstance(step, AddGrad) else _GRAD_OF_EDGES[type(step.step)]
            yield self._produced(Instruction(op, grad=grad), step.source)
        elif isinstance(step, InputGrad):
            yield self._produced(Instruction(Op.INPUT_GRAD, grad=grad, weight=self._number(step.step.weight)), step.source)
        elif isinstance(step, FinishGrad):
            yield from self._finish_grad(step, grad)
        else:
            yield self._produced(Instruction(Op.NORMALIZE_GRAD, source=step.step.source, grad=grad), step.source)

    def _finish_grad(self, step: FinishGrad, grad: int) -> Iterator[Instruction]:
        made = self._finish(Op.FINISH_GRAD, step.step)
        alone = step.step.activation not in ("", "relu")  # relu's derivative costs nothing where the norm's is computed
        if made.site >= 0 or alone:
            activated = self._keys.activated(step.grad)
            yield made._replace(op=Op.ACTIVATION_GRAD, out=activated, grad=grad, **({} if alone else {"source": -1, "activation": 0}))
            grad = activated
        made = made._replace(grad=grad, site=-1, activation=0 if alone else made.activation)
        if made.norm >= 0:
            yield made._replace(op=Op.NORM_SUMS)
        yield self._produced(made, step.source)

    def _gather_grad(self, step: GatherGrad, grad: int) -> Iterator[Instruction]:
        gather = step.step
        reads_source = gather.bonds is not None or gather.aggr == "max"
        made = self._with_bonds(Instruction(Op.GATHER_GRAD, source=gather.source if reads_source else -1, grad=grad), gather)
        if step.source is not None:
            result = gather.out if gather.aggr == "max" else -1
            yield self._produced(made._replace(result=result, weight=self._number(gather.eps)), step.source)
        if gather.train_eps:
            yield Instruction(Op.EPS_GRAD, source=gather.source, grad=grad, weight=self._number(gather.eps))
        if step.bonds is not None:
            yield from self._bonds_grad(made._replace(op=Op.BONDS_GRAD), step.bonds)

    def _expand_grad(self, step: ExpandGrad, grad: int) -> Iterator[Instruction]:
        if step.source is not None:
            yield self._produced(Instruction(Op.EXPAND_GRAD, grad=grad), step.source)
        if step.target is not None:
            yield self._produced(Instruction(Op.SUM_INCOMING, source=grad), step.target)
        if step.bonds is not None:
            yield from self._bonds_grad(self._bonds_of(Instruction(Op.EXPAND_BONDS_GRAD, grad=grad), step.step.bonds), step.bonds)

    def _gate_grad(self, step: GateGrad, grad: int) -> Iterator[Instruction]:
        gate = step.step
        if step.source is not None:
            yield self._produced(Instruction(Op.GATE_SOURCE_GRAD, grad=grad, bonds=gate.gates), step.source)
        if step.gates is not None:
            yield self._produced(Instruction(Op.GATE_GRAD, source=gate.source, grad=grad, bonds=gate.gates), step.gates)

    def _attend(self, op: Op, step: Attend) -> Instruction:
        made = Instruction(op, source=step.source, target=_or_none(step.target), attend=self._attends.index(step))
        return self._bonds_of(made, step.bonds)

    def _attend_grad(self, step: AttendGrad, grad: int) -> Iterator[Instruction]:
        """Yield the gradients in one instruction, each followed by what is added to it and its mask."""
        made, ends = self._attend(Op.ATTEND_GRAD, step.step)._replace(grad=grad, result=step.step.softmax), list[Instruction]()
        for name, produced in (("second", step.target), ("third", step.bonds), ("out", step.source)):
            if produced is None:
                continue
            if name == "third" and self._coded:
                made = made._replace(table=len(self.table_widths))
                ends.append(self._produced(Instruction(Op.TABLE_GRAD, table=len(self.table_widths)), produced))
                self.table_widths.append(self._program.values[produced.value].width)
                continue
            whole = produced.add is None and produced.mask is None
            alone = self._keys.gradient(produced.out) if whole else self._keys.activated(produced.out)
            made = made._replace(**{name: alone})
            if not whole:
                ends.append(self._produced(Instruction(Op.ADD_GRAD, grad=alone), produced))
        yield made
        yield from ends

    def _bonds_grad(self, made: Instruction, bonds: Produced) -> Iterator[Instruction]:
        """Yield the gradient of bonds' rows, by way of the sums for a table of distinct bonds where there is one."""
        if not self._coded:
            yield self._produced(made, bonds)
            return
        yield made._replace(table=len(self.table_widths))
        yield self._produced(Instruction(Op.TABLE_GRAD, table=len(self.table_widths)), bonds)
        self.table_widths.append(self._program.values[bonds.value].width)

    def _finish(self, op: Op, step: Finish) -> Instruction:
        norm = -1 if step.norm is None else self._norms[step.norm]
        return Instruction(op, source=step.source, norm=norm, activation=ACTIVATIONS.index(step.activation), site=_or_none(step.dropout))

    def _with_bonds(self, made: Instruction, step: Gather) -> Instruction:
        return self._bonds_of(made._replace(kind=AGGREGATIONS.index(step.aggr)), step.bonds)

    def _bonds_of(self, made: Instruction, bonds: int | None) -> Instruction:
        """Let an instruction read rows of bonds, which may be a table of distinct ones."""
        if bonds is None:
            return made
        return made._replace(memory=self._keys.table(bonds)) if self._of_table(bonds) else made._replace(bonds=bonds)

    def _produced(self, made: Instruction, produced: Produced) -> Instruction:
        add = -1 if produced.add is None else self._keys.gradient(produced.add)
        made = made._replace(out=self._keys.gradient(produced.out), add=add)
        return made if produced.mask is None else made._replace(mask=produced.value, dropped=int(produced.mask.dropout is not None))

    def _of_table(self, value: int) -> bool:
        return self._coded and self._program.values[value].rows == "bonds"

    def _number(self, name: str | None) -> int:
        return -1 if name is None else self._parameters[name]


def _or_none(number: int | None) -> int:
    return -1 if number is None else number
