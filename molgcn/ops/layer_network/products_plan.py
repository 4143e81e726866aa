"""How the kernels of matrix products divide rows and columns among blocks."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from molgcn.cuda_runtime.launch import Gpu

MAX_WIDTH = 1024  # columns on either side of a product that the kernels compute
_REGISTERS = 65536  # of a multiprocessor
_RESERVED_BYTES = 1024  # of shared memory beside what a block asks for
_MANY_PARTS = 256  # from which on sums are formed in groups
_ROWS_AT_ONCE = 32  # of a weight's gradient
_FEWEST_ROWS = 128  # of a block of it
_MANY_ROWS = 1024  # of a multiprocessor, from which on it has large tiles
_RESIDENT = {32: 5, 64: 3, 96: 2}  # blocks of a multiprocessor, by their tile
_MANY_SPLITS = 16  # from which on they are added in groups


def in_chunks(width: int) -> int:
    """Return how many times 16 columns hold a width."""
    return -(-width // 16)


@dataclass(frozen=True)
class RowBlocks:
    """How rows times a matrix are divided: a tile has `rows` rows, and the warps of a block share the columns of the result.

    Attributes:
        row_tiles: times 16 rows of a tile.
        column_tiles: times 16 columns of a warp.
        warps: of a block.
        min_blocks: that a multiprocessor has registers and memory for.
        num_tiles: tiles of rows.
        num_blocks: blocks, which go through several tiles each where those are many.
        in_width: columns of the rows.
        out_width: columns of the result.
    """

    row_tiles: int
    column_tiles: int
    warps: int
    min_blocks: int
    num_tiles: int
    num_blocks: int
    in_width: int
    out_width: int

    @property
    def rows(self) -> int:
        """Rows of a tile."""
        return 16 * self.row_tiles

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block: its tile and the next, or shares of moments."""
        tiles = 4 * self.rows * _stride(self.in_width) * (1 if self.num_blocks == self.num_tiles else 2)
        return 8 * self.rows + max(tiles, 16 + 48 * max(self.threads, 4 * in_chunks(self.out_width)) + 64 * in_chunks(self.out_width))

    @property
    def blocks_per_group(self) -> int:
        """Blocks whose moments are merged together before those of the groups."""
        return self.num_blocks if self.num_blocks <= _MANY_PARTS else math.isqrt(self.num_blocks - 1) + 1

    @property
    def num_groups(self) -> int:
        """Groups of blocks."""
        return -(-self.num_blocks // self.blocks_per_group)

    @property
    def part_bytes(self) -> int:
        """Memory for the moments of a block or group: `part_numbers` in cuda/product_moments.cuh."""
        return 4 * (2 * 16 * in_chunks(self.out_width) + 4)

    @property
    def defines(self) -> dict[str, int]:
        """The macros of the division."""
        return {
            "IN": self.in_width,
            "OUT": self.out_width,
            "ROW_TILES": self.row_tiles,
            "COLUMN_TILES": self.column_tiles,
            "WARP_COLUMNS": self.warps,
            "MIN_BLOCKS": self.min_blocks,
        }


def _stride(width: int) -> int:
    """Return the numbers from a row in shared memory to the next."""
    chunks = in_chunks(width)
    return 16 * (chunks + 1 - chunks % 2)


@cache
def row_blocks(num_rows: int, in_width: int, out_width: int, gpu: Gpu) -> RowBlocks:
    """Return the division of so many rows times a matrix: small tiles, so that small batches too reach all multiprocessors.

    Measured on an H100: up to 192 columns more blocks hide each other's waits; beyond, large tiles read the matrix less often.
    """
    chunks = in_chunks(out_width)
    column_tiles = 1 if chunks <= 12 else -(-chunks // 16) if chunks > 32 else 2
    for row_tiles in (4, 2, 1) if column_tiles > 1 else (2, 1):
        plan = _row_blocks(num_rows, in_width, out_width, row_tiles, column_tiles, gpu)
        registers = 40 + 8 * column_tiles * row_tiles + 16 * column_tiles + 8 * row_tiles  # of a thread
        fits = plan.shared_bytes <= gpu.shared_limit and registers * plan.threads <= _REGISTERS
        if fits and plan.num_tiles >= 2 * gpu.num_multiprocessors:
            break
    return plan


def _row_blocks(num_rows: int, in_width: int, out_width: int, row_tiles: int, column_tiles: int, gpu: Gpu) -> RowBlocks:
    warps = -(-in_chunks(out_width) // column_tiles)
    num_tiles = max(1, -(-num_rows // (16 * row_tiles)))
    for min_blocks in range(max(1, min(8, 24 // warps)) if column_tiles == 1 else 1, 0, -1):
        num_blocks = min(num_tiles, min_blocks * gpu.num_multiprocessors)
        plan = RowBlocks(row_tiles, column_tiles, warps, min_blocks, num_tiles, num_blocks, in_width, out_width)
        if min_blocks * (plan.shared_bytes + _RESERVED_BYTES) <= gpu.shared_limit + _RESERVED_BYTES:
            break
    return plan if plan.shared_bytes <= gpu.shared_limit else replace(plan, num_blocks=num_tiles)


class Shape(NamedTuple):
    """A matrix whose gradient is wanted: `out` x `in_`, from `rows` rows; `in_` is 0 where only a bias is."""

    rows: int
    out: int
    in_: int


@dataclass(frozen=True)
class WeightBlocks:
    """How the gradient of one matrix is divided.

    Attributes:
        tile: rows and columns of a block.
        num_tiles: blocks of the matrix.
        splits: parts of the rows.
        rows_per_split: rows of each.
    """

    tile: int
    num_tiles: int
    splits: int
    rows_per_split: int

    @property
    def num_blocks(self) -> int:
        """Blocks of the launch."""
        return self.num_tiles * self.splits

    @property
    def splits_per_group(self) -> int:
        """Parts whose sums are added together before those of the groups."""
        return self.splits if self.splits <= _MANY_SPLITS else math.isqrt(self.splits - 1) + 1

    @property
    def num_groups(self) -> int:
        """Groups of parts."""
        return -(-self.splits // self.splits_per_group)

    @property
    def num_counters(self) -> int:
        """Counters of the blocks that have arrived."""
        return self.num_tiles * (self.num_groups + 1)

    @property
    def partial_bytes(self) -> int:
        """Memory for the sums of parts and groups."""
        return 4 * self.num_tiles * (self.splits + self.num_groups) * (self.tile**2 + self.tile) if self.splits > 1 else 0


def shared_bytes(tile: int) -> int:
    """Return the shared memory of a block of weights' gradients."""
    return 2 * 2 * 4 * _ROWS_AT_ONCE * (tile + 8) + 16


@cache
def weight_blocks(shapes: Sequence[Shape], gpu: Gpu) -> tuple[WeightBlocks, ...]:
    """Return the divisions of matrices whose gradients one launch computes: about as many blocks as there is room for.

    Large tiles read G and x less often, but only wide matrices of many rows have enough of them for all multiprocessors.
    """
    widest = max(max(shape.out, shape.in_) for shape in shapes)
    large = 32 if widest <= 64 else 96 if -(-widest // 96) * 96 <= -(-widest // 64) * 64 else 64
    for tile in (large, 32):
        tiles = [-(-shape.out // tile) * max(1, -(-shape.in_ // tile)) for shape in shapes]
        work = sum(shape.rows * count for shape, count in zip(shapes, tiles, strict=True))
        if work >= _MANY_ROWS * gpu.num_multiprocessors:
            break
    room = _RESIDENT[tile] * gpu.num_multiprocessors
    rows = max(_FEWEST_ROWS, -(-work // room))  # of a block
    splits = [max(1, -(-shape.rows // rows)) for shape in shapes]
    if sum(map(operator.mul, tiles, splits)) > room:  # a few blocks that wait for room would take as long as all others
        splits = [max(1, shape.rows // rows) for shape in shapes]
    rows_per_split = [
        -(-max(shape.rows, 1) // (count * _ROWS_AT_ONCE)) * _ROWS_AT_ONCE for shape, count in zip(shapes, splits, strict=True)
    ]
    return tuple(map(WeightBlocks, [tile] * len(shapes), tiles, splits, rows_per_split))
