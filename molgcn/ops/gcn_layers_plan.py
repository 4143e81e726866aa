"""How a batch of graph convolutions is divided into blocks on a GPU, and the layout of the arrays in `saved`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from molgcn.cuda_runtime.launch import Gpu
from molgcn.ops.gcn_network import GcnCall
from molgcn.ops.gcn_tile_plan import shared_limit

MAX_TABLE = 256  # the most layers whose addresses fit in one launch's arguments
LAYER_TABLES = (16, 64)  # lengths of the tables of layers that are one launch
_TILES = 2  # from so many tiles for each multiprocessor on, one launch for all layers is faster
_NARROWEST, _WIDEST = 7, 16  # in times 16 columns: those for which it is
_MOST_OF_PAIR = 48  # the most blocks of 16 x 16 numbers of a tile of which two were measured on a multiprocessor
_RESERVED_BYTES = 1024  # shared memory that CUDA takes for each block


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
    """How the kernels of molecules, and that of the pooling after batch statistics, divide the atoms.

    Attributes:
        warp_rows: The number of rows of warps in a block.
        warp_columns: The number of columns of warps in a block.
        row_tiles: The number of tiles of 16 atoms of a warp.
        column_tiles: The number of tiles of 16 columns of a warp.
        width: The number of columns of the features in memory.
        min_blocks: The number of blocks that a multiprocessor has registers for.
        num_tiles: The number of tiles of whole molecules, each of which a block takes through all layers.
        max_layers: The number of layers that a launch has room for; 0 in the pooling.
    """

    warp_rows: int
    warp_columns: int
    row_tiles: int
    column_tiles: int
    width: int
    min_blocks: int = 1
    num_tiles: int = 0
    max_layers: int = 0

    @property
    def rows(self) -> int:
        """The number of atoms of a tile."""
        return 16 * self.row_tiles * self.warp_rows

    @property
    def threads(self) -> int:
        """The number of threads of a block."""
        return 32 * self.warp_rows * self.warp_columns

    @property
    def shared_bytes(self) -> int:
        """The shared memory of a block in bytes: `struct Shared` in cuda/gcn_layer_tile.cuh."""
        return 4 * (2 * self.rows + 1) * self.stride + 52 * self.rows + 4 * 6 * self.width

    @property
    def pool_bytes(self) -> int:
        """The shared memory in bytes in which a block pools molecules: sums and ties of its threads' columns."""
        return 2 * 16 * max(self.threads, self.width // 4)

    @property
    def stride(self) -> int:
        """The distance between two rows in shared memory, in numbers."""
        depth = max(self.width, 64)
        return depth + 16 if depth % 32 == 0 else depth

    @property
    def defines(self) -> dict[str, int]:
        """The macros that tell the kernels how the atoms are divided."""
        return {
            "WARP_ROWS": self.warp_rows,
            "WARP_COLUMNS": self.warp_columns,
            "ROW_TILES": self.row_tiles,
            "COLUMN_TILES": self.column_tiles,
            "MIN_BLOCKS": self.min_blocks,
            **({"MAX_LAYERS": self.max_layers} if self.max_layers else {}),
        }


def pool_blocks(call: GcnCall, gpu: Gpu) -> Blocks:
    """Return the division of the pooling after batch statistics: small blocks, several of which fit on a multiprocessor."""
    width = padded_width(call.network.hidden_channels)
    chunks = width // 16
    if chunks <= 2:
        plan = Blocks(4, 1, 1, chunks, width, 4)
    elif chunks <= 4:
        plan = Blocks(2, -(-chunks // 2), 2, 2, width, 4)
    elif chunks <= 12:
        plan = Blocks(1, chunks, 2, 1, width, 4 if chunks == 8 else 24 // chunks)
    else:
        plan = Blocks(1, -(-chunks // 2), 2, 2, width, 2 if chunks <= 16 else 1)
    return plan if plan.shared_bytes <= shared_limit(gpu) else replace(plan, row_tiles=1)


def molecule_blocks(call: GcnCall, gpu: Gpu) -> Blocks | None:
    """Return the division for blocks that take tiles of whole molecules through all layers, or None if they cannot or are not faster.

    docs/decisions/cuda_wide_molecules.md has the measurements.
    """
    graph, width = call.graph, padded_width(call.network.hidden_channels)
    if call.batch_statistics or graph.tile_ptr is None or graph.large_molecules or graph.tile_nodes % 16 > 0:
        return None
    num_tiles, chunks = graph.tile_ptr.shape[0] - 1, width // 16
    max_layers = next((size for size in LAYER_TABLES if call.network.num_layers < size), 0)
    fitting = _of_tiles(width, graph.tile_nodes // 16, gpu)
    whole = padded_width(call.network.in_channels) <= width  # rows of x too
    faster = _NARROWEST <= chunks <= _WIDEST and num_tiles >= _TILES * gpu.num_multiprocessors
    return replace(fitting[0], num_tiles=num_tiles, max_layers=max_layers) if fitting and whole and faster and max_layers > 0 else None


def _of_tiles(width: int, row_tiles: int, gpu: Gpu) -> list[Blocks]:
    """Return the divisions of a tile of whole molecules that fit a GPU, the fastest first: two blocks on a multiprocessor, or one."""
    chunks = width // 16
    warp_rows = 2 if chunks <= 8 and row_tiles % 2 == 0 else 1
    pair = Blocks(warp_rows, -(-chunks // 2), row_tiles // warp_rows, 2, width, min_blocks=2)
    plans = [pair, Blocks(1, chunks, row_tiles, 1, width)] if chunks > 8 else [pair]
    plans = plans[chunks * row_tiles > _MOST_OF_PAIR :]
    return [plan for plan in plans if fit_together(plan.min_blocks, plan.shared_bytes, gpu)]


def fit_together(count: int, shared_bytes: int, gpu: Gpu) -> bool:
    """Return whether a multiprocessor has shared memory for `count` blocks at the same time."""
    return count * (shared_bytes + _RESERVED_BYTES) <= shared_limit(gpu) + _RESERVED_BYTES


def pairs_small_tiles(hidden_channels: int, small: int, large: int, gpu: Gpu) -> bool:
    """Return whether a multiprocessor has room for two tiles of whole molecules of at most `small` atoms, but for one of `large` atoms."""
    width = padded_width(hidden_channels)
    together = [plan.min_blocks for tile_nodes in (small, large) for plan in _of_tiles(width, tile_nodes // 16, gpu)[:1]]
    return _NARROWEST <= width // 16 <= _WIDEST and together == [2, 1]


def saved_layout(call: GcnCall, keep: bool = True) -> Layout:
    """Return the layout of what forward keeps for backward, or without `keep` of what forward itself needs.

    Shapes are in molgcn/ops/gcn_layers_arguments.py. `features` are [L, N, width]: the inputs of all layers except the first, and the last
    one's output. Without `keep` there are only two, which the layers use in turn.
    """
    num_nodes, num_features = call.graph.num_nodes, call.network.in_channels
    layers, norms, graphs = call.network.num_layers, call.network.num_norms, call.graph.num_graphs
    width = padded_width(call.network.hidden_channels)
    row, plane = 4 * num_nodes, 4 * num_nodes * width
    keep = keep or call.batch_statistics
    ties = 4 * graphs * width if call.network.pool == "max" and keep else 0
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


def moments_size(call: GcnCall) -> int:
    """Return how many numbers a norm keeps: two for each atom (layer norm) or for each column (batch norm)."""
    return 2 * call.graph.num_nodes if call.network.norm == "layer" else 2 * padded_width(call.network.hidden_channels)
