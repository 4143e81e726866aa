"""The steps of a pass as instructions on tiles of whole molecules, cut where batch norm couples them: what `cpu/tile_pass.hpp` runs."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from molgcn.ops.layer_network.backward import Backward, FinishGrad, GatherGrad, GradStep, InputGrad, Produced, WeightGrads
from molgcn.ops.layer_network.program import Program
from molgcn.ops.layer_network.spec import LayerNetworkSpec
from molgcn.ops.layer_network.steps import Finish, Gather, Linear, Step, Value

AGGREGATIONS = ("sum", "mean", "max", "gcn", "gcn_loops")


class Op(IntEnum):
    """What an instruction does, as `Op` in `cpu/layer_network.hpp`."""

    LOAD = 0
    STORE = 1
    GATHER = 2
    LINEAR = 3
    FINISH = 4
    NORMALIZE = 5
    POOL = 6
    MOMENTS = 7
    POOL_GRAD = 8
    NORM_SUMS = 9
    DROPOUT_GRAD = 10
    FINISH_GRAD = 11
    INPUT_GRAD = 12
    PRODUCT = 13
    GATHER_GRAD = 14
    BONDS_GRAD = 15
    EPS_GRAD = 16
    NORMALIZE_GRAD = 17
    TABLE_GRAD = 18


class Instruction(NamedTuple):
    """One instruction, as `Instruction` in `cpu/layer_network.hpp`; -1 stands for none.

    Attributes:
        op: see :class:`Op`.
        out: rows that it writes; a number of :class:`Keys`, and of a place in a tile's memory once that is laid out.
        source: rows of the forward pass that it reads.
        grad: rows of a gradient that it reads.
        bonds: rows of the tile's bonds.
        result: rows that the forward step made.
        add: rows that are added to what it writes.
        mask: rows where what it writes is 0 unless they are positive.
        memory: rows outside the tile: from where LOAD and to where STORE copies, and the table of distinct bonds of a gather.
        dropped: 1 where `mask` has been through dropout.
        weight: number of a parameter: the matrix, or eps.
        bias: number of a parameter.
        norm: number of a norm.
        kind: of a gather, a place in :data:`AGGREGATIONS`.
        table: number of the gradient of a table of distinct bonds.
        relu: 1 where relu follows.
        site: number of the dropout that follows.
    """

    op: int
    out: int = -1
    source: int = -1
    grad: int = -1
    bonds: int = -1
    result: int = -1
    add: int = -1
    mask: int = -1
    memory: int = -1
    dropped: int = 0
    weight: int = -1
    bias: int = -1
    norm: int = -1
    kind: int = -1
    table: int = -1
    relu: int = 0
    site: int = -1

    @property
    def read(self) -> tuple[int, ...]:
        """The rows of the tile that it reads."""
        return tuple(rows for rows in (self.source, self.grad, self.bonds, self.result, self.add, self.mask) if rows >= 0)


class Segment(NamedTuple):
    """Instructions that run tile by tile, with no tile waiting for another.

    Attributes:
        instructions: in their order.
        norm: the batch norm whose sums over all tiles are complete then, or -1.
        table: the tiles are rows of the table of distinct bonds, instead of molecules.
    """

    instructions: tuple[Instruction, ...]
    norm: int = -1
    table: bool = False


class Keys:
    """The numbers of all rows: first values; then gradients, and those of what dropout was given; then tables of distinct bonds.

    Args:
        program: the forward pass.
        gradients: the value of each gradient.
    """

    def __init__(self, program: Program, gradients: tuple[int, ...] = ()) -> None:
        self._rows = program.values
        self._values = (*range(len(program.values)), *gradients, *gradients, *range(len(program.values)))
        self._first_gradient, self._num_gradients = len(program.values), len(gradients)

    def gradient(self, number: int) -> int:
        """Return the number of a gradient's rows."""
        return self._first_gradient + number

    def dropped(self, number: int) -> int:
        """Return the number of a gradient's rows once it has gone through the dropout of a step."""
        return self._first_gradient + self._num_gradients + number

    def table(self, value: int) -> int:
        """Return the number of a value's rows as a table."""
        return self._first_gradient + 2 * self._num_gradients + value

    def value(self, key: int) -> int:
        """Return the value of which these rows are, or are the gradient or table."""
        return self._values[key]

    def rows(self, key: int) -> Value:
        """Return the kind and width of these rows."""
        return self._rows[self._values[key]]


class Builder:
    """The instructions of a pass.

    Args:
        spec: the network.
        program: its forward pass.
        keys: the numbers of all rows.
        coded: whether the graph has codes of bonds, so that bonds' rows are those of a table.
        batch_statistics: whether batch norms take the statistics of the batch.
    """

    def __init__(self, spec: LayerNetworkSpec, program: Program, keys: Keys, *, coded: bool, batch_statistics: bool) -> None:
        self.table_widths: list[int] = []
        self._spec = spec
        self._program = program
        self._keys = keys
        self._coded = coded
        self._parameters = {name: place for place, name in enumerate(spec.parameters)}
        self._norms = {name: place for place, name in enumerate(spec.norms)}
        self._batch_norms = {self._norms[name] for name in spec.batch_norms} if batch_statistics else set()
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
        self._emit(Instruction(Op.POOL, source=self._program.out))
        tables = [Segment((*self._table, *self._stored_tables()), table=True)] if self._coded else []
        return *tables, *self._segments, Segment(tuple(self._tiles))

    def backward(self, backward: Backward) -> tuple[Segment, ...]:
        """Return the segments of the backward pass."""
        for step in backward.steps:
            for product in step.products if isinstance(step, WeightGrads) else ():
                made = Instruction(Op.PRODUCT, source=_or_none(product.source), grad=self._keys.gradient(product.grad))
                made = made._replace(weight=self._number(product.weight), bias=self._number(product.bias))
                self._products.setdefault(made.grad, []).append(made)
        source = self._program.out if self._spec.pool == "max" else -1
        self._emit(self._produced(Instruction(Op.POOL_GRAD, source=source), Produced(self._program.out, 0, None, backward.mask)))
        for step in backward.steps:
            self._emit(*self._backward(step))
        tables = [Segment(tuple(self._stored_tables()), table=True)] if self._coded else []
        last = [Segment(tuple(self._table), table=True)] if self._coded else []
        return *tables, *self._segments, Segment(tuple(self._tiles)), *last

    def _emit(self, *instructions: Instruction) -> None:
        """Add instructions, each with the products that its gradient is part of, and cut where tiles have to wait for all others."""
        for made in instructions:
            values = [self._keys.value(rows) for rows in (made.source, made.out) if rows >= 0]
            to = self._table if any(map(self._of_table, values)) else self._tiles
            for each in (made, *self._products.pop(made.out, ())):
                for rows in each.read:
                    self._make_again(rows)
                to.append(each)
            if made.op in (Op.MOMENTS, Op.NORM_SUMS) and made.norm in self._batch_norms:
                self._segments.append(Segment(tuple(self._tiles), made.norm))
                self._tiles = []
                self._present.clear()

    def _make_again(self, rows: int) -> None:
        """In a backward pass, add what makes a value from others where that takes less time than to write it to memory and read it back."""
        step = self._makers.get(rows)
        if rows in self._present or step is None or isinstance(step, Linear):
            return
        if isinstance(step, Finish) and (step.dropout is not None or self._adds(step.add)):
            return
        self._present.add(rows)
        *_, made = self._forward(step)  # a batch norm's moments are known
        for read in made.read:
            self._make_again(read)
        self._tiles.append(made)

    def _adds(self, value: int | None) -> bool:
        """Whether a value is a sum with an earlier one, so that values that add it would be made from ever earlier ones."""
        step = self._makers.get(-1 if value is None else value)
        return isinstance(step, Finish) and step.add is not None

    def _stored_tables(self) -> Iterator[Instruction]:
        """Yield what makes the tables that gathers read."""
        for value in sorted({step.bonds for step in self._program.steps if isinstance(step, Gather) and step.bonds is not None}):
            yield Instruction(Op.STORE, source=value, memory=self._keys.table(value))

    def _forward(self, step: Step) -> Iterator[Instruction]:
        if isinstance(step, Gather):
            made = Instruction(Op.GATHER, step.out, step.source, weight=self._number(step.eps), bias=self._number(step.bias))
            yield self._with_bonds(made, step)
        elif isinstance(step, Linear):
            made = Instruction(Op.LINEAR, step.out, step.source, weight=self._number(step.weight), bias=self._number(step.bias))
            yield made._replace(add=_or_none(step.add), relu=int(step.relu), site=_or_none(step.dropout))
        elif isinstance(step, Finish):
            made = self._finish(Op.FINISH, step)
            if made.norm in self._batch_norms:
                yield Instruction(Op.MOMENTS, source=step.source, norm=made.norm)
            yield made._replace(out=step.out, add=_or_none(step.add))
        else:
            yield Instruction(Op.NORMALIZE, step.out, step.source)

    def _backward(self, step: GradStep) -> Iterator[Instruction]:
        if isinstance(step, WeightGrads):
            return
        grad = self._keys.gradient(step.grad)
        if isinstance(step, GatherGrad):
            yield from self._gather_grad(step, grad)
        elif isinstance(step, InputGrad):
            yield self._produced(Instruction(Op.INPUT_GRAD, grad=grad, weight=self._number(step.step.weight)), step.source)
        elif isinstance(step, FinishGrad):
            yield from self._finish_grad(step, grad)
        else:
            yield self._produced(Instruction(Op.NORMALIZE_GRAD, source=step.step.source, grad=grad), step.source)

    def _finish_grad(self, step: FinishGrad, grad: int) -> Iterator[Instruction]:
        made = self._finish(Op.FINISH_GRAD, step.step)
        if made.site >= 0:
            dropped = self._keys.dropped(step.grad)
            yield Instruction(Op.DROPOUT_GRAD, out=dropped, grad=grad, site=made.site)
            grad = dropped
        made = made._replace(grad=grad, site=-1)
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
        if gather.eps is not None and self._spec.train_eps:
            yield Instruction(Op.EPS_GRAD, source=gather.source, grad=grad, weight=self._number(gather.eps))
        if step.bonds is not None and self._coded:
            yield made._replace(op=Op.BONDS_GRAD, table=len(self.table_widths))
            yield self._produced(Instruction(Op.TABLE_GRAD, table=len(self.table_widths)), step.bonds)
            self.table_widths.append(self._program.values[step.bonds.value].width)
        elif step.bonds is not None:
            yield self._produced(made._replace(op=Op.BONDS_GRAD), step.bonds)

    def _finish(self, op: Op, step: Finish) -> Instruction:
        norm = -1 if step.norm is None else self._norms[step.norm]
        return Instruction(op, source=step.source, norm=norm, relu=int(step.relu), site=_or_none(step.dropout))

    def _with_bonds(self, made: Instruction, step: Gather) -> Instruction:
        made = made._replace(kind=AGGREGATIONS.index(step.aggr))
        if step.bonds is None:
            return made
        return made._replace(memory=self._keys.table(step.bonds)) if self._coded else made._replace(bonds=step.bonds)

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
