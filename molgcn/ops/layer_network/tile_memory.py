"""Lay out the rows of a pass that runs tile by tile.

Rows are in a tile's own memory. Rows that other segments or passes read are in memory outside the tiles, and are used there. The pass's
inputs and outputs, which are not padded, are copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from molgcn.ops.layer_network.instructions import Instruction, Keys, Op, Segment
from molgcn.ops.layer_network.memory import lay_out, spans
from molgcn.ops.layer_network.steps import BONDS, X

_LINE = 16  # numbers, so that rows are whole vectors in every instruction set
_SLACK_ROWS = 12  # rows that a product reads beyond the last of a tile


class Home(IntEnum):
    """The tensor that rows outside tiles belong to."""

    X = 0
    BONDS = 1
    SAVED = 2
    SCRATCH = 3
    GRAD_X = 4
    GRAD_BONDS = 5


class Buffer(NamedTuple):
    """A tile's rows of one value or gradient, in the tile's memory or outside.

    Attributes:
        bonds: 1 for one row per bond of the tile, or per row of its part of the table; 0 for one row per atom.
        width: The number of columns.
        offset: The number of columns of the same kind before these in the tile's memory.
        memory: The number of the rows outside that are used in place, or -1.
    """

    bonds: int
    width: int
    offset: int
    memory: int = -1


class Memory(NamedTuple):
    """Rows outside tiles.

    Attributes:
        rows: The kind of rows: 0 for atoms, 1 for bonds, 2 for directed bonds where the rows of bonds are a table.
        width: The number of columns.
        stride: The distance between two rows, in numbers.
        offset: The number of columns of the same kind before these.
        home: The tensor that the rows belong to.
    """

    rows: int
    width: int
    stride: int
    offset: int
    home: Home


class Columns(NamedTuple):
    """The total numbers of columns in some memory, which has the rows of atoms first, then those of bonds and of edges.

    Attributes:
        atoms: The number of columns of rows of atoms.
        bonds: The number of columns of rows of bonds.
        edges: The number of columns of rows of edges.
        slack: The numbers behind the last row, which products read.
    """

    atoms: int = 0
    bonds: int = 0
    edges: int = 0
    slack: int = 0

    def numbers(self, rows: tuple[int, int, int]) -> int:
        """Return the size of the memory in numbers, where `rows` are the numbers of atoms, of rows of bonds and of edges."""
        return sum(columns * count for columns, count in zip(self[:3], rows, strict=True)) + self.slack

    def first_number(self, memory: Memory, rows: tuple[int, int, int]) -> int:
        """Return the offset of some rows in this memory in numbers; `rows` are the numbers of atoms, of rows of bonds and of edges."""
        before = sum(columns * count for columns, count in zip(self[: memory.rows], rows, strict=False))
        return memory.offset * rows[memory.rows] + before


class TileProgram(NamedTuple):
    """A pass whose instructions refer to buffers and memory by number.

    Attributes:
        segments: The instructions, including those that move rows between tiles and memory.
        buffers: The rows of a tile.
        memory: The rows outside tiles.
        buffer_columns: The number of columns of a tile's memory.
        columns: The number of columns of each tensor outside tiles.
    """

    segments: tuple[Segment, ...]
    buffers: tuple[Buffer, ...]
    memory: tuple[Memory, ...]
    buffer_columns: Columns
    columns: Mapping[Home, Columns]


def lay_out_tiles(segments: Sequence[Segment], keys: Keys, saved: Sequence[int], outputs: Mapping[int, Home]) -> TileProgram:
    """Return the pass with all of its rows laid out in memory.

    Args:
        segments: The instructions, whose rows have the numbers of `keys`.
        keys: The numbers of all rows.
        saved: The values that the forward pass saves.
        outputs: The rows that the pass returns, each with the tensor that it is returned in.
    """
    return _Layouter(segments, keys, saved, outputs).laid_out()


def loaded_values(segments: Sequence[Segment], keys: Keys) -> tuple[int, ...]:
    """Return the values that segments read but have not computed themselves, except the network's inputs."""
    found = {key for segment in segments for key in _from_outside(segment) if key == keys.value(key)}
    return tuple(sorted(found - {X, BONDS}))


def _from_outside(segment: Segment) -> Iterator[int]:
    """Yield the rows that a segment reads before it has computed them."""
    made: set[int] = set()
    for instruction in segment.instructions:
        yield from (key for key in instruction.read if key not in made)
        made.update(instruction.written)


class _Layouter:
    """Lays out the rows of a pass; see :func:`lay_out_tiles`."""

    def __init__(self, segments: Sequence[Segment], keys: Keys, saved: Sequence[int], outputs: Mapping[int, Home]) -> None:
        self._keys = keys
        self._homes = {X: Home.X, BONDS: Home.BONDS} | dict.fromkeys(saved, Home.SAVED) | dict(outputs)
        self._outside = {key for segment in segments for key in _from_outside(segment)} | set(self._homes)
        self._in_place = {key for key in self._outside if self._homes.get(key, Home.SCRATCH) in (Home.SAVED, Home.SCRATCH)}
        self._segments = [segment._replace(instructions=tuple(self._with_moves(segment))) for segment in segments]
        self._memory, self._columns = self._all_memory(saved)
        self._buffers: list[Buffer] = []
        self._buffer_columns = Columns()

    def laid_out(self) -> TileProgram:
        segments = tuple(self._numbered(segment) for segment in self._segments)
        return TileProgram(segments, tuple(self._buffers), tuple(self._memory.values()), self._buffer_columns, self._columns)

    def _with_moves(self, segment: Segment) -> Iterator[Instruction]:
        """Yield the instructions with the loads and stores of rows that are not used in place."""
        present = set(self._in_place)
        for instruction in segment.instructions:
            for key in instruction.read:
                if key not in present:
                    yield Instruction(Op.LOAD, out=key, memory=key)
                    present.add(key)
            yield instruction
            present.update(instruction.written)
            for key in instruction.written:
                if key in self._outside - self._in_place:
                    yield Instruction(Op.STORE, source=key, memory=key)

    def _all_memory(self, saved: Sequence[int]) -> tuple[dict[int, Memory], dict[Home, Columns]]:
        """Return the memory of all rows outside tiles, in the order of its numbers, and the columns of each tensor."""
        touched = [
            tuple(
                key
                for each in segment.instructions
                for key in (each.memory, *self._in_place.intersection((*each.read, *each.written)))
                if key >= 0
            )
            for segment in self._segments
        ]
        used = sorted({key for keys in touched for key in keys})
        memory: dict[int, Memory] = {}
        columns = [0, 0, 0]
        for key in saved:
            rows, width = self._rows(key)
            memory[key] = Memory(rows, width, _padded(width), columns[rows], Home.SAVED)
            columns[rows] += _padded(width)
        scratch = [0, 0, 0]
        for kind in (0, 1, 2):
            sizes = {key: _padded(self._rows(key)[1]) for key in used if key not in self._homes and self._rows(key)[0] == kind}
            offsets, scratch[kind], _ = lay_out(spans(sizes, touched))
            memory |= {key: Memory(kind, self._rows(key)[1], size, offsets[key], Home.SCRATCH) for key, size in sizes.items()}
        for key in used:
            if key not in memory:
                rows, width = self._rows(key)
                memory[key] = Memory(rows, width, width, 0, self._homes[key])
        slack = _SLACK_ROWS * max((each.stride for each in memory.values()), default=0)
        own = {Home.SAVED: Columns(*columns)._replace(slack=slack), Home.SCRATCH: Columns(*scratch)._replace(slack=slack)}
        return {key: memory[key] for key in used}, dict.fromkeys(Home, Columns()) | own

    def _numbered(self, segment: Segment) -> Segment:
        """Return the segment with the numbers of buffers and memory instead of keys."""
        touched = [(*each.read, *each.written) for each in segment.instructions]
        numbers, columns = {-1: -1}, list(self._buffer_columns)[:2]
        for kind in (0, 1):
            own = {key for keys in touched for key in keys if self._of_bonds(key) == kind} - self._in_place
            sizes = {key: _padded(self._rows(key)[1]) for key in own}
            offsets, size, _ = lay_out(spans(sizes, touched))
            columns[kind] = max(columns[kind], size)
            for key, offset in offsets.items():
                numbers[key] = len(self._buffers)
                self._buffers.append(Buffer(kind, self._rows(key)[1], offset))
        self._buffer_columns = Columns(*columns)
        memory = {-1: -1} | {key: number for number, key in enumerate(self._memory)}
        for key in self._in_place.intersection(key for keys in touched for key in keys):
            numbers[key] = len(self._buffers)
            self._buffers.append(Buffer(self._of_bonds(key), self._rows(key)[1], offset=0, memory=memory[key]))
        names = ("out", "source", "grad", "bonds", "result", "add", "mask", "target", "second", "third")
        instructions = (
            each._replace(memory=memory[each.memory], **{name: numbers[getattr(each, name)] for name in names})
            for each in segment.instructions
        )
        return segment._replace(instructions=tuple(instructions))

    def _rows(self, key: int) -> tuple[int, int]:
        """Return the kind of rows, as :class:`Memory` has it, and their width."""
        rows, width = self._keys.rows(key)
        return ("atoms", "bonds", "edges").index(rows), width

    def _of_bonds(self, key: int) -> int:
        """Return 1 for rows of bonds or edges, which a tile has equally many of, and 0 for rows of atoms."""
        return min(self._rows(key)[0], 1)


def _padded(width: int) -> int:
    return -(-width // _LINE) * _LINE
