"""How a batch is divided into blocks on a GPU that runs the network layer by layer, and the layout of the arrays in `saved`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from molgcn.cuda_runtime.launch import Gpu
from molgcn.ops.gcn_tile_plan import shared_limit
from molgcn.ops.message_network import NetworkCall

MAX_HIDDEN = 512  # the widest product in the kernel; wider ones are PyTorch's
MAX_TABLE = 256  # the most layers whose addresses fit in one launch's arguments
_MAX_PARTS = 128  # the most partial sums over atoms that a kernel reads
_STREAM = 4  # from this many tiles per block on, a block goes through them one after the other
_HALO_ROWS = 8  # rows of a tile for atoms of other tiles
_RESERVED_BYTES = 1024  # shared memory that CUDA takes for each block
_ATOMS = 32  # the number of atoms that a weight gradient reads at a time


def padded_width(columns: int) -> int:
    """Return the number of columns of a row in memory: the next multiple of 16."""
    return -(-columns // 16) * 16


class Layout:
    """Arrays side by side in one tensor.

    Attributes:
        offsets: The offset of each array in bytes.
        num_bytes: The size of the tensor in bytes.
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.offsets: dict[str, int] = {}
        self.num_bytes = 0
        for name, size in sizes.items():
            self.offsets[name] = self.num_bytes
            self.num_bytes += -(-size // 256) * 256


@dataclass(frozen=True)
class Blocks:
    """How the layers' kernels divide the atoms.

    Attributes:
        warp_rows: The number of rows of warps in a block.
        warp_columns: The number of columns of warps in a block.
        row_tiles: The number of tiles of 16 atoms of a warp.
        column_tiles: The number of tiles of 16 columns of a warp.
        num_tiles: The number of tiles of `rows` atoms, enough for all atoms that a padded batch has room for.
        width: The number of columns of the features in memory.
        min_blocks: The number of blocks that a multiprocessor has registers for.
        streams: The number of blocks that each go through several tiles (cuda/gcn_stream.cuh); 0 if every tile has its own block.
    """

    warp_rows: int
    warp_columns: int
    row_tiles: int
    column_tiles: int
    num_tiles: int
    width: int
    min_blocks: int = 1
    streams: int = 0

    @property
    def rows(self) -> int:
        """The number of atoms of a tile."""
        return 16 * self.row_tiles * self.warp_rows

    @property
    def threads(self) -> int:
        """The number of threads of a block."""
        return 32 * self.warp_rows * self.warp_columns

    @property
    def num_blocks(self) -> int:
        """The number of blocks of a launch."""
        return self.streams or self.num_tiles

    @property
    def num_parts(self) -> int:
        """The number of partial sums that every block of the next kernel reads: one per tile, or a single one if there are many tiles."""
        return self.num_tiles if self.num_tiles <= _MAX_PARTS and not self.streams else 1

    @property
    def atoms_per_part(self) -> int:
        """The number of atoms of each partial sum."""
        return self.rows * self.num_tiles // self.num_parts

    @property
    def tiles_per_group(self) -> int:
        """The number of blocks in a group. Many blocks add up their sums in groups, about as many groups as blocks in each."""
        return 1 if self.num_parts == self.num_tiles else math.isqrt(self.num_blocks - 1) + 1

    @property
    def num_groups(self) -> int:
        """The number of groups of blocks."""
        return -(-self.num_blocks // self.tiles_per_group)

    @property
    def shared_bytes(self) -> int:
        """The shared memory of a block in bytes: `struct Shared` in cuda/gcn_layer_tile.cuh."""
        return 4 * (2 * self.rows + 1) * self.stride + 56 * self.rows + 4 * 6 * self.width + 16

    @property
    def stride(self) -> int:
        """The distance between two rows in shared memory, in numbers."""
        depth = max(self.width, 64)
        return depth + 16 if depth % 32 == 0 else depth

    def kernel(self, direction: str) -> str:
        """Return the name of the kernel that runs a layer "forward" or "backward"."""
        return f"gcn_{'stream' if self.streams else 'layer'}_{direction}"

    def kernel_bytes(self, backward: bool) -> int:
        """Return the shared memory of a block of that kernel in bytes: `struct Stream` in cuda/gcn_stream.cuh, or `struct Shared`."""
        rows = (1 + backward) * self.rows + 2 * _HALO_ROWS + 1
        sums = 0 if backward else 2 * (4 * self.threads // self.width) * self.width
        copies = 4 * (rows * self.stride + 4 * self.width + sums) + 44 * self.rows + 4 * _HALO_ROWS + 16
        return self.shared_bytes + (copies if self.streams else 0)

    @property
    def defines(self) -> dict[str, int]:
        """The macros that tell the kernels how the atoms are divided."""
        return {
            "WARP_ROWS": self.warp_rows,
            "WARP_COLUMNS": self.warp_columns,
            "ROW_TILES": self.row_tiles,
            "COLUMN_TILES": self.column_tiles,
            "MIN_BLOCKS": self.min_blocks,
            **({"HALO_ROWS": _HALO_ROWS} if self.streams else {}),
        }


def blocks(call: NetworkCall, gpu: Gpu) -> Blocks:
    """Return the division of a batch into small blocks, so that even small batches use all multiprocessors, with several blocks on each."""
    width = padded_width(call.spec.hidden_channels)
    chunks = width // 16
    if chunks <= 2:
        warp_rows, row_tiles, column_tiles, min_blocks = 4, 1, chunks, 4
    elif chunks <= 4:
        warp_rows, row_tiles, column_tiles, min_blocks = 2, 2, 2, 4
    elif chunks <= 12:
        warp_rows, row_tiles, column_tiles, min_blocks = 1, 2, 1, 4 if chunks == 8 else 24 // chunks
    else:
        warp_rows, row_tiles, column_tiles, min_blocks = 1, 2, 2, 2 if chunks <= 16 else 1
    while True:
        rows = 16 * row_tiles * warp_rows
        num_tiles = max(1, -(-call.graph.num_nodes // rows))
        plan = Blocks(warp_rows, -(-chunks // column_tiles), row_tiles, column_tiles, num_tiles, width, min_blocks)
        if row_tiles == 1 or plan.shared_bytes <= shared_limit(gpu):
            return _streamed(plan, call, gpu)
        row_tiles -= 1


def _streamed(plan: Blocks, call: NetworkCall, gpu: Gpu) -> Blocks:
    """Return the division for blocks that go through many tiles if these fit on the GPU and are faster, else `plan`.

    docs/decisions/cuda_layer_by_layer.md has the measurements. Up to 128 features, more blocks hide each other's latency. From 193
    features on, shared memory is too small.
    """
    chunks = plan.width // 16
    streams = replace(plan, warp_columns=-(-chunks // 2), column_tiles=2, streams=plan.min_blocks * gpu.num_multiprocessors)
    fits = plan.min_blocks * (streams.kernel_bytes(backward=True) + _RESERVED_BYTES) <= shared_limit(gpu) + _RESERVED_BYTES
    whole = padded_width(call.spec.in_channels) <= plan.width  # rows of x too
    many = plan.num_tiles >= _STREAM * streams.streams
    return streams if call.batch_statistics and 8 < chunks <= 12 and fits and whole and many else plan


@dataclass(frozen=True)
class WeightBlocks:
    """How the weight gradients of some layers are divided among blocks.

    Attributes:
        tile: The number of rows and of columns of a gradient that a block computes.
        num_tiles: The number of tiles of all these layers.
        splits: The number of parts that the atoms are split into.
        atoms_per_split: The number of atoms of each part.
    """

    tile: int
    num_tiles: int
    splits: int
    atoms_per_split: int

    @property
    def shared_bytes(self) -> int:
        """The shared memory of a block in bytes."""
        return 2 * 2 * 4 * _ATOMS * (self.tile + 8) + 16

    @property
    def partial_bytes(self) -> int:
        """The size of the parts' sums in bytes."""
        return 4 * self.splits * self.num_tiles * self.tile**2


def weight_blocks(call: NetworkCall, first_layer: int, num_layers: int, gpu: Gpu) -> WeightBlocks:
    """Return the division for `num_layers` layers from `first_layer` on.

    There are about two large or four small blocks per multiprocessor. Each has at least 128 atoms, unless the batch has fewer.
    """
    num_nodes, num_features = call.graph.x.shape
    width = padded_width(call.spec.hidden_channels)
    tile = 32 if width <= 32 else 96 if -(-width // 96) * 96 <= -(-width // 64) * 64 else 64  # large tiles read G and H less often
    across = -(-width // tile)
    first = -(-padded_width(num_features) // tile) * across if first_layer == 0 else 0
    num_tiles = first + (num_layers - (first_layer == 0)) * across**2
    most = 2 * gpu.num_multiprocessors // num_tiles if tile == 96 else -(-4 * gpu.num_multiprocessors // num_tiles)
    splits = max(1, min(most, num_nodes // 128))
    atoms_per_split = -(-max(num_nodes, 1) // (splits * _ATOMS)) * _ATOMS
    return WeightBlocks(tile, num_tiles, splits, atoms_per_split)


def layers_together(call: NetworkCall, gpu: Gpu) -> int:
    """Return how many layers' weight gradients one launch computes: as many as there is memory for their G = Â dZ."""
    plane = 4 * call.graph.num_nodes * padded_width(call.spec.hidden_channels)
    return max(1, min(call.spec.num_layers, MAX_TABLE, gpu.gradient_bytes // max(plane, 1)))


def weight_spans(call: NetworkCall, gpu: Gpu) -> list[tuple[int, int, WeightBlocks]]:
    """Return the first layer, the end and the division of each launch that computes weight gradients, the last layers first."""
    together = layers_together(call, gpu)
    spans = [(max(0, end - together), end) for end in range(call.spec.num_layers, 0, -together)]
    return [(first, end, weight_blocks(call, first, end - first, gpu)) for first, end in spans]


def saved_layout(call: NetworkCall, keep: bool = True) -> Layout:
    """Return the layout of what forward keeps for backward, or without `keep` of what forward itself needs.

    Shapes are in molgcn/ops/gcn_layers_arguments.py. `features` are [L, N, width]: the inputs of all layers except the first, and the last
    one's output. Without `keep` there are only two, which the layers use in turn.
    """
    num_nodes, num_features = call.graph.x.shape
    layers, norms, graphs = call.spec.num_layers, call.spec.num_norms, call.graph.num_graphs
    width = padded_width(call.spec.hidden_channels)
    row, plane = 4 * num_nodes, 4 * num_nodes * width
    keep = keep or call.batch_statistics
    ties = 4 * graphs * width if call.spec.pool == "max" and keep else 0
    return Layout(
        {
            "sources": 4 * row,
            "factors": 4 * row,
            "scale": row,
            "graph": row,
            "x": row * padded_width(num_features) if num_features % 16 else 0,
            "features": plane * (layers if keep else 2),
            "raw": plane * norms if keep else 0,
            "moments": 4 * moments_size(call) * norms if keep else 0,
            "masks": plane // 16 * layers if keep else 0,
            "largest": ties,
            "ties": ties,
        }
    )


def moments_size(call: NetworkCall) -> int:
    """Return how many numbers a norm keeps: two for each atom (layer norm) or for each column (batch norm)."""
    return 2 * call.graph.num_nodes if call.spec.norm == "layer" else 2 * padded_width(call.spec.hidden_channels)
