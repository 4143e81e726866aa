"""The instructions of a pass on tiles of whole molecules, which `cpu/tile_pass.hpp` runs, and the numbers of the rows they take."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from molgcn.ops.layer_network.program import Program
from molgcn.ops.layer_network.steps import Value


class Op(IntEnum):
    """The operation of an instruction, with the numbers of `Op` in `cpu/layer_network.hpp`."""

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
    ACTIVATION_GRAD = 10
    FINISH_GRAD = 11
    INPUT_GRAD = 12
    PRODUCT = 13
    GATHER_GRAD = 14
    BONDS_GRAD = 15
    EPS_GRAD = 16
    NORMALIZE_GRAD = 17
    TABLE_GRAD = 18
    EXPAND = 19
    EXPAND_GRAD = 20
    EXPAND_BONDS_GRAD = 21
    SUM_INCOMING = 22
    SUM_INCOMING_GRAD = 23
    SUM_NON_BACKTRACKING = 24
    AVERAGE_DIRECTIONS = 25
    ADD_GRAD = 26
    ATTEND = 27
    ATTEND_GRAD = 28
    GATE = 29
    GATE_GRAD = 30
    GATE_SOURCE_GRAD = 31


class Instruction(NamedTuple):
    """One instruction, with the fields of `Instruction` in `cpu/layer_network.hpp`. -1 means none.

    Rows are numbers of :class:`Keys`, and once memory is laid out, numbers of a tile's buffers.

    Attributes:
        op: The operation; see :class:`Op`.
        out: The rows that it writes.
        source: The rows of the forward pass that it reads.
        grad: The rows of a gradient that it reads. With them SUM_NON_BACKTRACKING and AVERAGE_DIRECTIONS compute gradients.
        bonds: The rows of the tile's bonds that it reads.
        result: The rows that the forward step has written.
        add: The rows that are added to `out`.
        mask: The rows that `out` is masked by. `out` is 0 wherever they are not positive.
        memory: Rows outside the tile: the source of LOAD, the destination of STORE, or a gather's table of distinct bonds.
        dropped: 1 if `mask` has gone through dropout, otherwise 0.
        weight: The number of a parameter: a weight or eps.
        bias: The number of a parameter: a bias.
        norm: The number of a norm.
        kind: The aggregation of a gather, an index into :data:`AGGREGATIONS`.
        table: The number of the gradient of a table of distinct bonds, or the place of what is pooled among the program's `outs`.
        activation: The number of the activation that follows, an index into :data:`ACTIVATIONS`.
        site: The number of the dropout that follows.
        target: The rows of the target in the scores of attention, or those that EXPAND adds for the atom that a bond points at.
        second: The second rows that it writes: of ATTEND the softmax, of ATTEND_GRAD the gradient of the target.
        third: The third rows that it writes: of ATTEND_GRAD the gradient of the bonds.
        attend: The number of an :class:`Attend` step among those of the program.
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
    activation: int = 0
    site: int = -1
    target: int = -1
    second: int = -1
    third: int = -1
    attend: int = -1

    @property
    def read(self) -> tuple[int, ...]:
        """The rows of the tile that the instruction reads."""
        read = (self.source, self.grad, self.bonds, self.result, self.add, self.mask, self.target)
        return tuple(rows for rows in read if rows >= 0)

    @property
    def written(self) -> tuple[int, ...]:
        """The rows of the tile that the instruction writes."""
        return tuple(rows for rows in (self.out, self.second, self.third) if rows >= 0)


class Segment(NamedTuple):
    """Instructions that run tile by tile, where no tile waits for another.

    Attributes:
        instructions: The instructions in their order.
        norm: The batch norm whose sums over all tiles are complete at the end, or -1.
        table: Whether the tiles are rows of the table of distinct bonds, not of molecules.
    """

    instructions: tuple[Instruction, ...]
    norm: int = -1
    table: bool = False


class Keys:
    """The numbering of all rows: values, then gradients, then gradients of activations' inputs, then tables of distinct bonds.

    Args:
        program: The forward pass.
        gradients: The value that each gradient belongs to.
    """

    def __init__(self, program: Program, gradients: tuple[int, ...] = ()) -> None:
        self._rows = program.values
        self._values = (*range(len(program.values)), *gradients, *gradients, *range(len(program.values)))
        self._first_gradient, self._num_gradients = len(program.values), len(gradients)

    def gradient(self, number: int) -> int:
        """Return the number of a gradient's rows."""
        return self._first_gradient + number

    def activated(self, number: int) -> int:
        """Return the number of a gradient's rows after the backward of a step's dropout and activation."""
        return self._first_gradient + self._num_gradients + number

    def table(self, value: int) -> int:
        """Return the number of a value's rows as a table of distinct bonds."""
        return self._first_gradient + 2 * self._num_gradients + value

    def value(self, key: int) -> int:
        """Return the value that these rows are, or are the gradient or the table of."""
        return self._values[key]

    def rows(self, key: int) -> Value:
        """Return the kind and width of these rows."""
        return self._rows[self._values[key]]
