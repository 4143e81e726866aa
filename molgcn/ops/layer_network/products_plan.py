"""How the kernels of matrix products divide rows and columns among blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from molgcn.cuda_runtime.launch import Gpu

MAX_WIDTH = 1024  # columns on either side of a product that the kernels compute
_MANY_PARTS = 128  # from which on sums are formed in groups
_ROWS_AT_ONCE = 32  # of a weight's gradient


def in_chunks(width: int) -> int:
    """Return how many times 16 columns hold a width."""
    return -(-width // 16)


@dataclass(frozen=True)
class RowBlocks:
    """How rows times a matrix are divided: a block has `rows` rows, and its warps share the columns of the result.

    Attributes:
        row_tiles: times 16 rows of a block.
        column_tiles: times 16 columns of a warp.
        warps: of a block.
        min_blocks: that a multiprocessor has registers for.
        num_tiles: blocks.
        in_width: columns of the rows.
        out_width: columns of the result.
    """

    row_tiles: int
    column_tiles: int
    warps: int
    min_blocks: int
    num_tiles: int
    in_width: int
    out_width: int

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return 16 * self.row_tiles

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block: its rows, or shares of moments."""
        return 4 * (self.rows + 4) + max(4 * self.rows * _stride(self.in_width), 32 * max(self.threads, 4 * in_chunks(self.out_width)))

    @property
    def tiles_per_group(self) -> int:
        """Blocks whose moments are merged together before those of the groups."""
        return self.num_tiles if self.num_tiles <= _MANY_PARTS else math.isqrt(self.num_tiles - 1) + 1

    @property
    def num_groups(self) -> int:
        """Groups of blocks."""
        return -(-self.num_tiles // self.tiles_per_group)

    @property
    def moments_bytes(self) -> int:
        """Memory for the moments of one block, or group."""
        return 4 * 2 * 16 * in_chunks(self.out_width)

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
    """Return the division of so many rows times a matrix: small blocks, so that small batches too reach all multiprocessors."""
    chunks = in_chunks(out_width)
    column_tiles = 1 if chunks <= 12 else 2 if chunks <= 24 else 3 if chunks <= 48 else 4
    warps = -(-chunks // column_tiles)
    for row_tiles in (2, 1):
        min_blocks = max(1, min(8, (24 if column_tiles == 1 else 16) // warps))
        plan = RowBlocks(row_tiles, column_tiles, warps, min_blocks, max(1, -(-num_rows // (16 * row_tiles))), in_width, out_width)
        if plan.shared_bytes <= gpu.shared_limit and plan.num_tiles >= 2 * gpu.num_multiprocessors:
            break
    return plan


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
    def partial_bytes(self) -> int:
        """Memory for the parts' sums."""
        return 4 * self.num_blocks * (self.tile**2 + self.tile) if self.splits > 1 else 0


def shared_bytes(tile: int) -> int:
    """Return the shared memory of a block of weights' gradients."""
    return 2 * 2 * 4 * _ROWS_AT_ONCE * (tile + 8) + 16


@cache
def weight_blocks(shapes: Sequence[Shape], gpu: Gpu) -> tuple[WeightBlocks, ...]:
    """Return the divisions of matrices whose gradients one launch computes: about as many blocks as there is room for."""
    widest = max(max(shape.out, shape.in_) for shape in shapes)
    tile = 32 if widest <= 32 else 96 if -(-widest // 96) * 96 <= -(-widest // 64) * 64 else 64  # large ones read G and x less often
    tiles = [-(-shape.out // tile) * max(1, -(-shape.in_ // tile)) for shape in shapes]
    work = sum(shape.rows * count for shape, count in zip(shapes, tiles, strict=True))
    rows = max(128, work // ((2 if tile == 96 else 4) * gpu.num_multiprocessors))  # of a block
    plans = []
    for shape, count in zip(shapes, tiles, strict=True):
        splits = max(1, -(-shape.rows // rows))
        plans.append(WeightBlocks(tile, count, splits, -(-max(shape.rows, 1) // (splits * _ROWS_AT_ONCE)) * _ROWS_AT_ONCE))
    return tuple(plans)
