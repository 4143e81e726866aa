"""How the matrix product kernels divide rows and columns among blocks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from molgcn.cuda_runtime.launch import Gpu
from molgcn.ops.layer_network.memory import stride_of
from molgcn.ops.layer_network.norm_parts import merge_numbers, part_numbers

MAX_WIDTH = 1024  # the most input or output columns of a product
MAX_END_WIDTH = 512  # the most columns of rows that a product first takes through the end of a layer
# The most columns of two products that are added up as one. Wider, and with one of two rows much larger, the error is more than 2e-7.
MAX_SUMMED_WIDTH = 128
MAX_TOGETHER = 3  # the most weights whose products one launch computes as one: results of the same rows side by side, or a sum
_REGISTERS = 65536  # registers of a multiprocessor
_RESERVED_BYTES = 1024  # shared memory that CUDA takes for each block
_MOST_WARPS = 21  # the most warps of a block with operands in shared memory: each has enough registers
_FEWER_WARPS = 16  # as many where each has the sums of two products beside each other, or long rows of three arrays
_MAX_SHARED_WIDTH = 192  # the most columns of a launch that needs its operands in shared memory
_MIN_WARPGROUP_CHUNKS, _MAX_WARPGROUP_CHUNKS = 11, 20  # of columns: with fewer, and with more, other divisions are as fast
_WARPGROUP_ROW_GROUPS = (10, 8, 7, 6, 4, 2)  # the sizes of tiles that cuda/warpgroup.cuh has products for
_MOST_WARPGROUP_BYTES = 195 * 1024  # with more shared memory a block leaves the kernel that follows little of the L1 cache


def in_chunks(width: int) -> int:
    """Return how many chunks of 16 columns a width takes."""
    return -(-width // 16)


class Widths(NamedTuple):
    """The numbers of columns of the rows that a launch of products reads and computes.

    Attributes:
        source: The columns of the rows that are multiplied.
        middle: The columns of the result of the first of two products, 0 with one product.
        out: The columns of the last result.
        beside: Whether the second product does not multiply the result of the first, but the same rows.
        arrays: The number of arrays whose rows lie side by side, and are multiplied as one.
        part: The columns of each of several results that lie side by side in `out`, each from a multiple of four on; 0 with one result.
    """

    source: int
    middle: int
    out: int
    beside: bool = False
    arrays: int = 1
    part: int = 0

    @property
    def operand_numbers(self) -> int:
        """The size of the matrices as operands in numbers."""
        source, middle, out = self.source_chunks, in_chunks(self.middle), in_chunks(self.out)
        return 256 * (source * middle + (middle if middle and not self.beside else source) * out)

    @property
    def source_chunks(self) -> int:
        """The parts of 16 columns of the rows that are multiplied first."""
        return self.arrays * in_chunks(self.source)

    @property
    def between(self) -> int:
        """The columns of the rows between two products that follow each other, or 0."""
        return 0 if self.beside else self.middle


class Work(NamedTuple):
    """What a launch of products does beside them.

    Attributes:
        sources: The number of arrays that it reads of each row, 2 where a row is first combined with another.
        norm: Whether a norm is applied to the rows first.
        leaves: Whether a part of moments or sums is left for the next norm.
        follows: Whether other rows are read after the products: what is added, or the next norm's input in backward.
        gathers: Whether the rows are first summed along the bonds.
    """

    sources: int = 1
    norm: bool = False
    leaves: bool = False
    follows: bool = False
    gathers: bool = False


@dataclass(frozen=True)
class RowBlocks:
    """How products of rows and matrices are divided. A group of warps computes tiles of rows, whose columns its warps share.

    Attributes:
        row_groups: The number of eight rows of a tile.
        column_tiles: The number of 16-column parts of a warp.
        warps: The number of warps of a group.
        groups: The number of groups of a block.
        resident: Whether the operands of the matrices are in a block's shared memory.
        min_blocks: The number of blocks that a multiprocessor has registers and memory for.
        num_tiles: The number of tiles of rows.
        num_blocks: The number of blocks. Each goes through several tiles if there are many.
        widths: The numbers of columns.
        work: What the launch does beside the products.
        warpgroups: Whether each four warps multiply together, asynchronously, from halves that are kept apart from the rows.
    """

    row_groups: int
    column_tiles: int
    warps: int
    groups: int
    resident: bool
    min_blocks: int
    num_tiles: int
    num_blocks: int
    widths: Widths
    work: Work
    warpgroups: bool = False

    @property
    def rows(self) -> int:
        """The number of rows of a tile."""
        return 8 * self.row_groups

    @property
    def threads(self) -> int:
        """The number of threads of a block."""
        return 32 * self.warps * self.groups

    @property
    def shared_bytes(self) -> int:
        """The shared memory of a block in bytes: `Shared` in cuda/product_rows.cu."""
        widths, work, columns = self.widths, self.work, stride_of(self.widths.source)
        vectors = 32 * (in_chunks(widths.middle) + in_chunks(widths.out))
        norm, scratch = (6 * columns, -(-merge_numbers(self.threads, columns) // 4) * 4) if work.norm else (0, 0)
        parts = self.groups * part_numbers(widths.out) if work.leaves else 0
        if self.warpgroups:
            chunks = in_chunks(widths.source)
            halves = self.row_groups * (128 * chunks + 16 * (chunks // 2))
            source = self.rows * columns * work.sources
            arriving = 4 + 4 * self.row_groups * chunks + self.rows * (stride_of(widths.out) if work.follows and work.sources == 1 else 0)
            return 4 * (vectors + norm + parts + 2 * self.rows + source + max(scratch, halves) + arriving)
        buffers = 1 if self.resident or self.num_blocks == self.num_tiles else 2
        source = self.rows * _stride(widths.source_chunks) * work.sources * buffers
        between = self.rows * _stride(in_chunks(widths.between)) if widths.between else 0
        operands = widths.operand_numbers if self.resident else 0
        return 4 * (vectors + norm + scratch + parts + operands + self.groups * (2 * self.rows + max(source, between)))

    @property
    def defines(self) -> dict[str, int]:
        """The macros that tell the kernel how the products are divided."""
        return {
            "IN": self.widths.source,
            "ARRAYS": self.widths.arrays,
            "MIDDLE": self.widths.middle,
            "OUT": self.widths.out,
            "PARTS": self.widths.out // stride_of(self.widths.part) if self.widths.part else 1,
            "PART": self.widths.part or self.widths.out,
            "BESIDE": int(self.widths.beside),
            "ROW_GROUPS": self.row_groups,
            "COLUMN_TILES": self.column_tiles,
            "MIDDLE_TILES": max(1, -(-in_chunks(self.widths.middle) // self.warps)),
            "WARP_COLUMNS": self.warps,
            "GROUPS": self.groups,
            "RESIDENT": int(self.resident),
            "WARPGROUPS": int(self.warpgroups),
            "MIN_BLOCKS": self.min_blocks,
        }


def _stride(chunks: int) -> int:
    """Return the distance between two rows in shared memory, in numbers, from their parts of 16 columns."""
    return 16 * (chunks + 1 - chunks % 2)


_PLAIN = Work()


@cache
def row_blocks(num_rows: int, widths: Widths, gpu: Gpu, work: Work = _PLAIN, most_blocks: int | None = None) -> RowBlocks:
    """Return the division of products of rows and matrices, with tiles small enough that small batches use all multiprocessors.

    Args:
        num_rows: The number of rows, including padding.
        widths: The numbers of columns.
        gpu: The GPU.
        work: What the launch does beside the products.
        most_blocks: The most blocks, or None.
    """
    return (
        _warpgroup_blocks(num_rows, widths, gpu, work, most_blocks)
        or _resident_blocks(num_rows, widths, gpu, work)
        or _other_blocks(num_rows, widths, gpu, work, most_blocks)
    )


def fits_shared(num_rows: int, widths: Widths, gpu: Gpu) -> bool:
    """Return whether a launch has room for its operands in shared memory, as one of two products, or of a gather and products, needs."""
    return max(widths[:3]) <= _MAX_SHARED_WIDTH and _resident_blocks(num_rows, widths, gpu, Work(2, True, True)) is not None


def _resident_blocks(num_rows: int, widths: Widths, gpu: Gpu, work: Work) -> RowBlocks | None:
    """Return the division with operands in shared memory and one block on a multiprocessor, or None if there is no room.

    Small batches have tiles of 8 or 16 rows and a tile for each group. Measured on an H100: with two groups a block, a tile of 8 rows is
    faster than one of 16 with one group. With more blocks, or more groups, it is slower. On an H200 large batches of three arrays took 67
    instead of 85 us with tiles of 16 rows, whose warps have registers for another group and to ask early for what follows.
    """
    warps = in_chunks(widths.out)
    most_warps = _FEWER_WARPS if widths.beside or widths.arrays > 2 else _MOST_WARPS
    most = min(most_warps // warps, gpu.num_barriers - 1)  # each group has a named barrier
    more = min(_MOST_WARPS // warps, gpu.num_barriers - 1)
    large = (2, 1, more) if widths.arrays > 2 and more > most else (4, 1, most)
    for row_groups, fewest, most_groups in ((1, 2, min(2, most)), (2, 1, most), large):
        num_tiles = max(1, -(-num_rows // (8 * row_groups)))
        for groups in range(min(most_groups, max(fewest, -(-num_tiles // gpu.num_multiprocessors))), fewest - 1, -1):
            num_blocks = min(-(-num_tiles // groups), gpu.num_multiprocessors)
            plan = RowBlocks(row_groups, 1, warps, groups, True, 1, num_tiles, num_blocks, widths, work)
            fits = num_tiles <= groups * num_blocks or (row_groups, fewest, most_groups) == large
            if fits and plan.shared_bytes <= gpu.shared_limit:
                return plan
    return None


def _warpgroup_blocks(num_rows: int, widths: Widths, gpu: Gpu, work: Work, most_blocks: int | None) -> RowBlocks | None:
    """Return the division of one wide product that groups of four warps compute together, or None for others.

    Measured on an H100, a tile takes as long as its rows and about ten more. So what counts most is that all blocks have equally many.
    """
    chunks = in_chunks(widths.out)
    plain = not (widths.middle or widths.arrays > 1 or work.gathers)
    if not gpu.has_warpgroups or not plain or not _MIN_WARPGROUP_CHUNKS <= chunks <= _MAX_WARPGROUP_CHUNKS:
        return None
    plans, warps = [], 4 * -(-chunks // 4)
    for row_groups in _WARPGROUP_ROW_GROUPS:
        num_tiles = max(1, -(-num_rows // (8 * row_groups)))
        num_blocks = min(num_tiles, gpu.num_multiprocessors, most_blocks or num_tiles)
        plan = RowBlocks(row_groups, 1, warps, 1, False, 1, num_tiles, num_blocks, widths, work, warpgroups=True)
        if plan.shared_bytes <= min(gpu.shared_limit, _MOST_WARPGROUP_BYTES):
            plans.append(plan)
    return min(plans, key=lambda plan: -(-plan.num_tiles // plan.num_blocks) * (plan.rows + 10), default=None)


def _other_blocks(num_rows: int, widths: Widths, gpu: Gpu, work: Work, most_blocks: int | None) -> RowBlocks:
    """Return the division with operands in the L2 cache.

    Measured on an H100: up to 192 columns, more blocks hide each other's latency. With more columns, large tiles are faster, since they
    read the matrix less often.
    """
    chunks = in_chunks(widths.out)
    column_tiles = 1 if chunks <= 12 else -(-chunks // 16) if chunks > 32 else 2
    for row_groups in (8, 4, 2) if column_tiles > 1 else (4, 2):
        plan = _blocks_of(num_rows, widths, row_groups, column_tiles, gpu, work, most_blocks)
        registers = 40 + 4 * column_tiles * row_groups + 16 * column_tiles + 4 * row_groups  # registers of a thread
        fits = plan.shared_bytes <= gpu.shared_limit and registers * plan.threads <= _REGISTERS
        if fits and plan.num_tiles >= 2 * gpu.num_multiprocessors:
            break
    return plan


def _blocks_of(
    num_rows: int, widths: Widths, row_groups: int, column_tiles: int, gpu: Gpu, work: Work, most_blocks: int | None
) -> RowBlocks:
    warps = -(-in_chunks(widths.out) // column_tiles)
    num_tiles = max(1, -(-num_rows // (8 * row_groups)))
    for min_blocks in range(max(1, min(8, 24 // warps)) if column_tiles == 1 else 1, 0, -1):
        num_blocks = min(num_tiles, min_blocks * gpu.num_multiprocessors, most_blocks or num_tiles)
        plan = RowBlocks(row_groups, column_tiles, warps, 1, False, min_blocks, num_tiles, num_blocks, widths, work)
        if min_blocks * (plan.shared_bytes + _RESERVED_BYTES) <= gpu.shared_limit + _RESERVED_BYTES:
            break
    return plan if plan.shared_bytes <= gpu.shared_limit else replace(plan, num_blocks=num_tiles)
