"""How the matrix product kernels divide rows and columns among blocks."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from molgcn.cuda_runtime.launch import Gpu

MAX_WIDTH = 1024  # the most input or output columns of a product
_REGISTERS = 65536  # registers of a multiprocessor
_RESERVED_BYTES = 1024  # shared memory that CUDA takes for each block
_MANY_PARTS = 256  # with more blocks than this, moments are merged in groups
_ROWS_AT_ONCE = 32  # the number of rows that a weight gradient reads at a time
_FEWEST_ROWS = 128  # the fewest rows of a block of a weight gradient
_MANY_ROWS = 1024  # from this many rows per multiprocessor on, tiles are large
_RESIDENT = {32: 5, 64: 3, 96: 2}  # blocks per multiprocessor, by the size of their tile
_MANY_SPLITS = 16  # with more splits than this, sums are added in groups


def in_chunks(width: int) -> int:
    """Return how many chunks of 16 columns a width takes."""
    return -(-width // 16)


@dataclass(frozen=True)
class RowBlocks:
    """How a product of rows and a matrix is divided. A block computes tiles of rows, and its warps share the columns of the result.

    Attributes:
        row_tiles: The number of 16-row parts of a tile.
        column_tiles: The number of 16-column parts of a warp.
        warps: The number of warps of a block.
        min_blocks: The number of blocks that a multiprocessor has registers and memory for.
        num_tiles: The number of tiles of rows.
        num_blocks: The number of blocks. Each goes through several tiles if there are many.
        in_width: The number of columns of the rows.
        out_width: The number of columns of the result.
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
        """The number of rows of a tile."""
        return 16 * self.row_tiles

    @property
    def threads(self) -> int:
        """The number of threads of a block."""
        return 32 * self.warps

    @property
    def shared_bytes(self) -> int:
        """The shared memory of a block in bytes, for its tile and the next one, or for partial moments."""
        tiles = 4 * self.rows * _stride(self.in_width) * (1 if self.num_blocks == self.num_tiles else 2)
        return 8 * self.rows + max(tiles, 16 + 48 * max(self.threads, 4 * in_chunks(self.out_width)) + 64 * in_chunks(self.out_width))

    @property
    def blocks_per_group(self) -> int:
        """The number of blocks in a group. Moments are merged first within groups."""
        return self.num_blocks if self.num_blocks <= _MANY_PARTS else math.isqrt(self.num_blocks - 1) + 1

    @property
    def num_groups(self) -> int:
        """The number of groups of blocks."""
        return -(-self.num_blocks // self.blocks_per_group)

    @property
    def part_bytes(self) -> int:
        """The size of the moments of a block or group in bytes: `part_numbers` in cuda/product_moments.cuh."""
        return 4 * (2 * 16 * in_chunks(self.out_width) + 4)

    @property
    def defines(self) -> dict[str, int]:
        """The macros that tell the kernel how the product is divided."""
        return {
            "IN": self.in_width,
            "OUT": self.out_width,
            "ROW_TILES": self.row_tiles,
            "COLUMN_TILES": self.column_tiles,
            "WARP_COLUMNS": self.warps,
            "MIN_BLOCKS": self.min_blocks,
        }


def _stride(width: int) -> int:
    """Return the distance between two rows in shared memory, in numbers."""
    chunks = in_chunks(width)
    return 16 * (chunks + 1 - chunks % 2)


@cache
def row_blocks(num_rows: int, in_width: int, out_width: int, gpu: Gpu) -> RowBlocks:
    """Return the division of a product of rows and a matrix, with tiles small enough that small batches use all multiprocessors.

    Measured on an H100: up to 192 columns, more blocks hide each other's latency. With more columns, large tiles are faster, since they
    read the matrix less often.

    Args:
        num_rows: The number of rows.
        in_width: The number of columns of a row.
        out_width: The number of columns of the result.
        gpu: The properties of the GPU.
    """
    chunks = in_chunks(out_width)
    column_tiles = 1 if chunks <= 12 else -(-chunks // 16) if chunks > 32 else 2
    for row_tiles in (4, 2, 1) if column_tiles > 1 else (2, 1):
        plan = _row_blocks(num_rows, in_width, out_width, row_tiles, column_tiles, gpu)
        registers = 40 + 8 * column_tiles * row_tiles + 16 * column_tiles + 8 * row_tiles  # registers of a thread
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
    """The shape of the gradient of a weight [out, in_], summed over `rows` rows. `in_` is 0 if only a bias's gradient is wanted."""

    rows: int
    out: int
    in_: int


@dataclass(frozen=True)
class WeightBlocks:
    """How the gradient of one weight is divided among blocks.

    Attributes:
        tile: The number of rows and of columns of the gradient that a block computes.
        num_tiles: The number of tiles of the gradient.
        splits: The number of parts that the summed rows are split into.
        rows_per_split: The number of rows of each part.
    """

    tile: int
    num_tiles: int
    splits: int
    rows_per_split: int

    @property
    def num_blocks(self) -> int:
        """The number of blocks for this gradient."""
        return self.num_tiles * self.splits

    @property
    def splits_per_group(self) -> int:
        """The number of parts in a group. Sums are added first within groups."""
        return self.splits if self.splits <= _MANY_SPLITS else math.isqrt(self.splits - 1) + 1

    @property
    def num_groups(self) -> int:
        """The number of groups of parts."""
        return -(-self.splits // self.splits_per_group)

    @property
    def num_counters(self) -> int:
        """The number of counters of finished blocks."""
        return self.num_tiles * (self.num_groups + 1)

    @property
    def partial_bytes(self) -> int:
        """The size of the sums of parts and groups in bytes."""
        return 4 * self.num_tiles * (self.splits + self.num_groups) * (self.tile**2 + self.tile) if self.splits > 1 else 0


def shared_bytes(tile: int) -> int:
    """Return the shared memory in bytes of a block that computes a tile of a weight gradient."""
    return 2 * 2 * 4 * _ROWS_AT_ONCE * (tile + 8) + 16


@cache
def weight_blocks(shapes: Sequence[Shape], gpu: Gpu) -> tuple[WeightBlocks, ...]:
    """Return the divisions of the weight gradients that one launch computes, with about as many blocks as the GPU can run at once.

    Large tiles read G and x less often. But only wide weights with many rows have enough large tiles for all multiprocessors.
    """
    widest = max(max(shape.out, shape.in_) for shape in shapes)
    large = 32 if widest <= 64 else 96 if -(-widest // 96) * 96 <= -(-widest // 64) * 64 else 64
    for tile in (large, 32):
        tiles = [-(-shape.out // tile) * max(1, -(-shape.in_ // tile)) for shape in shapes]
        work = sum(shape.rows * count for shape, count in zip(shapes, tiles, strict=True))
        if work >= _MANY_ROWS * gpu.num_multiprocessors:
            break
    room = _RESIDENT[tile] * gpu.num_multiprocessors
    rows = max(_FEWEST_ROWS, -(-work // room))  # rows of a block
    splits = [max(1, -(-shape.rows // rows)) for shape in shapes]
    if sum(map(operator.mul, tiles, splits)) > room:  # a second round for a few blocks would take as long as the first
        splits = [max(1, shape.rows // rows) for shape in shapes]
    rows_per_split = [
        -(-max(shape.rows, 1) // (count * _ROWS_AT_ONCE)) * _ROWS_AT_ONCE for shape, count in zip(shapes, splits, strict=True)
    ]
    return tuple(map(WeightBlocks, [tile] * len(shapes), tiles, splits, rows_per_split))
