"""How the kernel of the gradients of weights divides them among blocks."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

from molgcn.cuda_runtime.launch import Gpu

_DIVISIONS = 256  # the number of divisions that are remembered, since batches without padding have many sizes
_ROWS_AT_ONCE = 32  # rows of a step of a group of warps
_MOST_WARPS, _MOST_CHUNKS = 16, 11  # the most warps of a block, and the most 16 columns of its tile
_MORE_WARPS = 20  # as many of a tile of 80 columns: 173 instead of 194 us for a layer of GatedGCN+ 9 x 70 on an H200
_MOST_WARPGROUP_CHUNKS = 12  # as many with asynchronous products
_SLICES = ((6, 2), (7, 2), (8, 2), (6, 3), (10, 2))  # (in_groups, slices) with enough registers
_SLICES_OF_THREE_WARPGROUPS = ((6, 2), (7, 2), (5, 4))  # for tiles of more than 128 rows, whose threads have fewer registers


class Shape(NamedTuple):
    """The shape of the gradient of a weight [out, in_], summed over `rows` rows. `in_` is 0 if only a bias's gradient is wanted."""

    rows: int
    out: int
    in_: int


@dataclass(frozen=True)
class WeightTile:
    """A square tile of a weight's gradient, which a block computes, and how the block's warps share the work.

    Attributes:
        chunks: The number of 16 rows and of 16 columns of the tile.
        groups: The number of groups of warps. Each has other rows of the batch.
        stages: The number of steps whose rows a group has room for.
    """

    chunks: int
    groups: int
    stages: int
    kernel: ClassVar[str] = "product_weights"

    @property
    def side(self) -> int:
        """The number of rows and of columns."""
        return 16 * self.chunks

    @property
    def out_blocks(self) -> int:
        """The number of 16-row parts of a warp. With two, which wide tiles of even size have, a warp converts fewer columns."""
        return 2 if self.chunks in (8, 10) else 1

    @property
    def threads(self) -> int:
        """The number of threads of a block. A group has as many warps as the tile has chunks."""
        return 32 * self.chunks * self.groups

    @property
    def shared_bytes(self) -> int:
        """The shared memory of a block in bytes: the rows under way, later the sums of all groups."""
        return 4 * self.groups * max(self.stages * 2 * _ROWS_AT_ONCE * (self.side + 8), self.side * (self.side + 5))

    @property
    def defines(self) -> dict[str, int]:
        """The macros that tell the kernel what the tile is."""
        return {"CHUNKS": self.chunks, "OUT_BLOCKS": self.out_blocks, "GROUPS": self.groups, "STAGES": self.stages}

    def num_tiles(self, shape: Shape) -> int:
        """Return the number of tiles of a gradient."""
        return -(-shape.out // self.side) * max(1, -(-shape.in_ // self.side))

    def time(self, division: WeightBlocks) -> float:
        """Return how long a block takes for its rows and to add up its groups, in nanoseconds on an H100."""
        return division.rows_per_split * self.chunks * (self.chunks + 1.4) + 100 * self.chunks**2


@dataclass(frozen=True)
class WarpgroupWeightTile:
    """A tile of a weight's gradient, which groups of four warps compute together by Hopper's asynchronous products.

    Attributes:
        out_chunks: The number of 16 rows of the tile.
        in_groups: The number of eight columns of the tile that are multiplied together.
        slices: The number of times that a tile has so many columns.
    """

    out_chunks: int
    in_groups: int
    slices: int
    kernel: ClassVar[str] = "product_weights_async"
    _stages: ClassVar[int] = 3  # the number of steps whose rows a block has room for
    groups: ClassVar[int] = 1  # of warps that have other rows of the batch: measured on an H100, more of them have too few registers

    @property
    def out_side(self) -> int:
        """The number of rows."""
        return 16 * self.out_chunks

    @property
    def in_side(self) -> int:
        """The number of columns."""
        return 8 * self.in_groups * self.slices

    @property
    def threads(self) -> int:
        """The number of threads of a block: a warp for each 16 rows, in complete fours of warps."""
        return 128 * -(-self.out_chunks // 4)

    @property
    def shared_bytes(self) -> int:
        """The shared memory of a block in bytes: `Shared` in cuda/product_weights_async.cu, which in lower precision needs less."""
        rows = self.out_side + self.in_side + 16 - self.in_side % 16
        numbers = self._stages * _ROWS_AT_ONCE * rows + 2 * _ROWS_AT_ONCE * self.in_side + (self.in_side // 8 + 3) // 2 * 4
        return 4 * max(numbers, self.out_side * (self.in_side + 5))

    @property
    def defines(self) -> dict[str, int]:
        """The macros that tell the kernel what the tile is."""
        sizes = {"OUT_CHUNKS": self.out_chunks, "IN_GROUPS": self.in_groups, "SLICES": self.slices}
        return {**sizes, "STAGES": self._stages, "GROUPS": self.groups, "WARPGROUPS": 1}

    def num_tiles(self, shape: Shape) -> int:
        """Return the number of tiles of a gradient."""
        return -(-shape.out // self.out_side) * max(1, -(-shape.in_ // self.in_side))

    def time(self, division: WeightBlocks) -> float:
        """Return how long a block takes for its rows and to write its sums, in nanoseconds on an H100."""
        size = self.out_chunks * self.in_side / 16
        return division.rows_per_split * (28.5 + 0.36 * size) + 100 * size


@dataclass(frozen=True)
class WeightBlocks:
    """How the gradient of one weight is divided among blocks.

    Attributes:
        shape: The shape of the gradient.
        num_tiles: The number of tiles of the gradient.
        splits: The number of parts that the summed rows are split into.
    """

    shape: Shape
    num_tiles: int
    splits: int

    @property
    def rows_per_split(self) -> int:
        """The number of rows of each part in a batch without padding; the kernel divides the real rows alike."""
        return -(-max(self.shape.rows, 1) // (self.splits * _ROWS_AT_ONCE)) * _ROWS_AT_ONCE

    @property
    def num_blocks(self) -> int:
        """The number of blocks for this gradient."""
        return self.num_tiles * self.splits

    @property
    def split_numbers(self) -> int:
        """The most numbers that a split leaves: a matrix and a bias."""
        return self.shape.out * (self.shape.in_ + 1)


@lru_cache(maxsize=_DIVISIONS)
def weight_blocks(shapes: Sequence[Shape], gpu: Gpu) -> tuple[WeightTile | WarpgroupWeightTile, tuple[WeightBlocks, ...]]:
    """Return the tile and the divisions of the weight gradients that one launch computes: those that take the least time."""
    counts = Counter(shapes)  # layers have the same shapes

    def time(tile: WeightTile | WarpgroupWeightTile) -> float:
        divisions = _divisions(counts, tile, gpu)
        rounds = -(-sum(count * divisions[shape].num_blocks for shape, count in counts.items()) // gpu.num_multiprocessors)
        return rounds * max(map(tile.time, divisions.values()))

    tile = min(_tiles(gpu), key=time)
    divisions = _divisions(counts, tile, gpu)
    return tile, tuple(divisions[shape] for shape in shapes)


def _tiles(gpu: Gpu) -> Iterator[WeightTile | WarpgroupWeightTile]:
    """Yield the tiles that a GPU has shared memory for, each with as many groups and stages as fit."""
    for out_chunks in range(1, _MOST_WARPGROUP_CHUNKS + 1) if gpu.has_warpgroups else ():
        for in_groups, slices in _SLICES if out_chunks <= 8 else _SLICES_OF_THREE_WARPGROUPS:
            tile = WarpgroupWeightTile(out_chunks, in_groups, slices)
            if tile.shared_bytes <= gpu.shared_limit:
                yield tile
    for chunks in range(2, _MOST_CHUNKS + 1):
        most = (_MORE_WARPS if chunks == 5 else _MOST_WARPS) // chunks
        for groups, stages in ((most, 3), *((groups, 2) for groups in range(most, 0, -1))):
            square = WeightTile(chunks, groups, stages)
            if square.shared_bytes <= gpu.shared_limit:
                yield square
                break


def _divisions(counts: Mapping[Shape, int], tile: WeightTile | WarpgroupWeightTile, gpu: Gpu) -> dict[Shape, WeightBlocks]:
    """Return divisions of the fewest rows of a block with which no block waits for another one to end.

    With more tiles than multiprocessors there are none, and a block has about as many rows as a multiprocessor's share of all tiles.
    """
    tiles = {shape: tile.num_tiles(shape) for shape in counts}
    work = sum(count * shape.rows * tiles[shape] for shape, count in counts.items())
    rows = max(_ROWS_AT_ONCE * tile.groups, -(-work // gpu.num_multiprocessors))  # rows of a block

    def fits(rows: int) -> bool:
        return sum(count * tiles[shape] * max(1, -(-shape.rows // rows)) for shape, count in counts.items()) <= gpu.num_multiprocessors

    if sum(count * tiles[shape] for shape, count in counts.items()) > gpu.num_multiprocessors:
        return {shape: WeightBlocks(shape, tiles[shape], max(1, shape.rows // rows)) for shape in counts}
    rows += bisect_left(range(rows, max(rows, *(shape.rows for shape in counts))), True, key=fits)
    return {shape: WeightBlocks(shape, tiles[shape], max(1, -(-shape.rows // rows))) for shape in counts}
