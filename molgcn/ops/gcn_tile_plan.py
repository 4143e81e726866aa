"""How strategy `tile` lays out a batch on a GPU: tiles, groups of warps, shared memory, and what forward keeps for backward."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from molgcn.cuda_runtime.launch import Gpu
from molgcn.ops.gcn_network import GcnCall
from molgcn.ops.gcn_tile_schedule import MIDDLE_TILE, SMALL_TILE, block_time, quickest_groups

TILE_MAX_WIDTH = 256
_MIDDLE_LAYOUT = (2, 3)  # warps and row tiles of a tile of 96 atoms
_TIME_OF_GLOBAL_SUMS = 0.9  # sums of gradients in global memory pay off if the rounds then take at most this part of the time (measured)
FEW_TILES = 3  # up to this many tiles per multiprocessor, each tile gets four warps
_WIDE_BLOCK = 512  # threads of a forward block with two warps per tile
_shared_limit: int | None = None


@contextmanager
def limit_shared_memory(num_bytes: int) -> Iterator[None]:
    """Plan inside a `with` block for a GPU with less shared memory per block: 99 KB on RTX 30 and 40, 163 on A100, 227 on H100."""
    global _shared_limit
    before, _shared_limit = _shared_limit, num_bytes
    try:
        yield
    finally:
        _shared_limit = before


def width_of(hidden_channels: int) -> int:
    """Return the number of columns of the features on the device, with padding."""
    return 16 if hidden_channels <= 16 else (hidden_channels + 31) // 32 * 32


class Saved:
    """The layout of the tensor `saved`, in which forward keeps what backward needs.

    Attributes:
        offsets: The offset of each array in bytes. Their shapes are in molgcn/ops/gcn_tile_arguments.py.
        num_bytes: The size of the tensor in bytes.
    """

    def __init__(self, call: GcnCall) -> None:
        num_nodes, layers, norms = call.graph.num_nodes, call.network.num_layers, call.network.num_norms
        tiles = call.graph.num_graphs if call.graph.tile_ptr is None else call.graph.tile_ptr.shape[0] - 1
        width, number_bytes, wide = width_of(call.network.hidden_channels), _number_bytes(call), wide_input(call)
        strips = 4 * tiles + num_nodes // SMALL_TILE + 2  # strips of 64 rows; no plan needs more
        sizes = {
            "arrivals": 8,
            "transposed": (6 if call.options.precision == "float32" else number_bytes) * width * width * (layers - 1),
            "wide_pulled": number_bytes * num_nodes * ((call.network.in_channels + 31) // 32 * 32) if wide else 0,
            "pulled": features_bytes(call) * layers,
            "normalised": 4 * num_nodes * width * norms,
            "deviations": 4 * num_nodes * norms,
            "last": 4 * num_nodes * width if call.network.pool == "max" else 0,
            "neighbours": tiles * ((15 + 2 * call.graph.leaves_merged) * (64 if call.graph.tile_nodes <= 64 else 128) + 64),
            "masks": strips * 512 * -(-width // 64) * layers,  # a lane's bits of a strip fill whole words, in any plan
        }
        self.offsets: dict[str, int] = {}
        self.num_bytes = 0
        for name, size in sizes.items():
            self.offsets[name] = self.num_bytes
            self.num_bytes += (size + 127) // 128 * 128


def features_bytes(call: GcnCall) -> int:
    """Return the bytes that forward keeps of one layer's aggregated features."""
    return _number_bytes(call) * call.graph.num_nodes * width_of(call.network.hidden_channels)


def wide_input(call: GcnCall) -> bool:
    """Return whether x has more columns than the hidden features have in memory."""
    return call.network.in_channels > width_of(call.network.hidden_channels)


def scratch_bytes(call: GcnCall, plan: Plan) -> int:
    """Return the bytes of scratch memory for molecules larger than a tile."""
    if not may_be_large(call, plan):
        return 0
    width = width_of(call.network.hidden_channels)
    return call.graph.num_nodes * width * (2 * _number_bytes(call) + 4)


def may_be_large(call: GcnCall, plan: Plan) -> bool:
    """Return whether a tile may have more atoms than the plan has rows: a large molecule, or several in the graph's larger tiles."""
    return call.graph.large_molecules or plan.tile_rows < call.graph.tile_nodes


def _number_bytes(call: GcnCall) -> int:
    return 2 if call.options.precision == "bf16" else 4


@dataclass(frozen=True)
class Plan:
    """The layout of one kernel.

    Attributes:
        grid: The number of blocks, one per multiprocessor.
        groups: The number of groups of warps in a block. Each group works on one tile.
        warps: The number of warps of a group.
        row_tiles: The number of tiles of 16 rows of a warp.
        max_threads: The most threads of a block. More would leave each thread too few registers.
        shared_bytes: The shared memory of a block in bytes.
        gradient_size: The number of values in a block's sums of gradients.
        reduced_size: The number of these values once the column sums of all warps and lanes are added up.
        shared: Whether the weights (forward) or the sums of gradients (backward) are in shared memory.
    """

    grid: int
    groups: int
    warps: int
    row_tiles: int
    max_threads: int
    shared_bytes: int
    gradient_size: int = 0
    reduced_size: int = 0
    shared: bool = False

    @property
    def tile_rows(self) -> int:
        """The number of rows of a tile."""
        return 16 * self.row_tiles * self.warps

    @property
    def threads(self) -> int:
        """The number of threads of a block."""
        return 32 * self.warps * self.groups

    @property
    def defines(self) -> dict[str, int]:
        """The macros that depend on the plan."""
        return {
            "WARPS": self.warps,
            "ROW_TILES": self.row_tiles,
            "MAX_THREADS": self.max_threads,
            "SHARED_GRADIENTS" if self.gradient_size else "SHARED_WEIGHTS": int(self.shared),
        }


def forward_plan(call: GcnCall, gpu: Gpu) -> Plan:
    """Return the plan for the forward of a batch with `tile_ptr`. All weights are in shared memory if enough of it is left."""
    width = width_of(call.network.hidden_channels)
    weights = (_number_bytes(call) * width + 4) * width * call.network.num_layers  # and biases
    shared = weights <= shared_limit(gpu) * 6 // 10
    return replace(_plan(call, gpu, weights if shared else 0, 1, _forward_layout(call, gpu)), shared=shared)


def backward_plan(call: GcnCall, gpu: Gpu) -> Plan:
    """Return the plan for the backward of a batch with `tile_ptr`.

    The sums of gradients are in shared memory if enough of it is left, unless more groups could be done in clearly fewer rounds without
    them.
    """
    layers, width, layout = call.network.num_layers, width_of(call.network.hidden_channels), _backward_layout(call, gpu)
    first = (call.network.in_channels + 31) // 32 * 32 if wide_input(call) else width
    kinds = 1 if call.network.norm is None else 3
    weights = (first + (layers - 1) * width) * width
    column_warps = (
        1 if layout[:2] == _MIDDLE_LAYOUT and call.options.precision == "float32" else layout.warps
    )  # cuda/gcn_tile_gradients.cuh
    size = weights + layers * column_warps * kinds * 4 * width
    in_pieces = wide_input(call) and call.options.precision == "bf16"
    first_turns = first // 16 + layout.warps if in_pieces else max(first // 16, layout.warps)  # cuda/gcn_tile_gradients.cuh
    turns = 4 * (first_turns + (layers - 1) * max(width // 16, layout.warps))
    plan, shared = (_plan(call, gpu, turns + reserved, 2 if call.options.precision == "bf16" else 1, layout) for reserved in (0, 4 * size))
    if 4 * size <= shared_limit(gpu) * 6 // 10 and _time_of(call, plan) > _TIME_OF_GLOBAL_SUMS * _time_of(call, shared):
        plan = replace(shared, shared=True)
    if (
        call.options.precision == "bf16"
    ):  # otherwise one multiprocessor may get two blocks while another has none (docs/decisions/cuda_tile_sizes.md)
        plan = replace(plan, shared_bytes=max(plan.shared_bytes, shared_limit(gpu) // 2 + 1))
    return replace(plan, gradient_size=size, reduced_size=weights + layers * kinds * width)


class _Layout(NamedTuple):
    """The layout of a tile: warps of its group, row tiles of each warp, and the most threads of a block (see :class:`Plan`)."""

    warps: int
    row_tiles: int
    max_threads: int


def _plan(call: GcnCall, gpu: Gpu, reserved: int, buffers: int, layout: _Layout) -> Plan:
    """Return the plan with the fastest number of groups that fit, or for a padded batch with one group per tile if these fit."""
    warps, row_tiles, max_threads = layout
    tile_rows = 16 * warps * row_tiles
    row_bytes = _number_bytes(call) * width_of(call.network.hidden_channels)
    table = (11 + 2 * call.graph.leaves_merged) * tile_rows  # the table of `cuda/table.cuh`, behind each tile's rows
    buffer = ((tile_rows + 1) * row_bytes + table + 127) // 128 * 128 + (buffers - 1) * tile_rows * row_bytes
    most = max(1, min(gpu.num_barriers - 1, max_threads // (32 * warps), (shared_limit(gpu) - reserved) // buffer))
    grid = max(1, min(_room(call), gpu.num_multiprocessors))
    tiles = max(1, -(-_num_tiles(call) // grid))
    groups = min(most, tiles) if _is_padded(call) else quickest_groups(tiles, most, warps)
    max_threads = min(max_threads, max(256, 32 * warps * groups))  # a thread has at most 255 registers
    return Plan(grid, groups, warps, row_tiles, max_threads, reserved + groups * buffer)


def _time_of(call: GcnCall, plan: Plan) -> float:
    """Return the time that a batch takes with a plan, in units of :func:`block_time`."""
    return block_time(-(-_num_tiles(call) // plan.grid), plan.groups, plan.warps)


def _room(call: GcnCall) -> int:
    """Return the number of tiles that the batch has room for."""
    assert call.graph.tile_ptr is not None
    return call.graph.tile_ptr.shape[0] - 1


def _is_padded(call: GcnCall) -> bool:
    """Return whether the batch is likely padded, with room for about twice its tiles. Tiles of one molecule each are never padding."""
    return 1.5 * call.graph.num_nodes / call.graph.tile_nodes < _room(call) < call.graph.num_graphs


def _num_tiles(call: GcnCall) -> int:
    """Return the number of tiles to plan for: half the room of a padded batch, since it fills fewer, otherwise all."""
    return -(-_room(call) // 2) if _is_padded(call) else _room(call)


def _forward_layout(call: GcnCall, gpu: Gpu) -> _Layout:
    """Return the layout of :func:`_layout`, but in some cases with two warps per tile in place of one.

    The contents of `saved` are the same. Two warps are faster for

    - 32 features if all tiles run at the same time, with 128 registers per thread. TF32 has fewer products and does not gain, and backward
      would read V twice;
    - 64 features if not all tiles run at the same time.
    """
    layout, width = _layout(call, gpu), width_of(call.network.hidden_channels)
    all_at_once = _num_tiles(call) <= _WIDE_BLOCK // 64 * gpu.num_multiprocessors
    if layout[:2] != (1, 4) or width < 32:
        return layout
    if width == 32:
        return _Layout(2, 2, _WIDE_BLOCK) if all_at_once and call.options.precision != "tf32" else layout
    return layout if all_at_once else _Layout(2, 2, 384)


def _backward_layout(call: GcnCall, gpu: Gpu) -> _Layout:
    """Return the layout of :func:`_layout`, but with two warps per tile in place of one for 64 features in float32.

    At most five groups then have 204 registers per thread. That is equally fast, or up to a sixth faster if one warp per tile would leave
    a round half empty (docs/decisions/cuda_tile_sizes.md).
    """
    layout = _layout(call, gpu)
    alone = layout[:2] == (1, 4) and width_of(call.network.hidden_channels) == 64 and call.options.precision == "float32"
    return _Layout(2, 2, 320) if alone else layout


def _layout(call: GcnCall, gpu: Gpu) -> _Layout:
    """Return the layout of a tile.

    More warps finish a tile sooner, but fewer warps read the weights less often. 64 rows of 64 columns fill a warp's registers.
    """
    width, per_block = width_of(call.network.hidden_channels), _num_tiles(call) / gpu.num_multiprocessors
    more = width > 16 and (call.network.norm is not None or call.network.residual)  # needs more registers, so half as many rows per warp
    few = 2048 * width > shared_limit(gpu)  # fewer than eight tiles fit, so that one warp per tile would be too few
    if 64 < call.graph.tile_nodes <= MIDDLE_TILE and width <= 32 and not more:
        return _Layout(*_MIDDLE_LAYOUT, 384)
    if call.graph.tile_nodes <= SMALL_TILE:
        warps, row_tiles = (3, 1) if per_block <= 4 or width > 32 or more else (1, 3)
    else:
        tile_rows = 128 if call.graph.tile_nodes > 64 and width <= 128 else 64
        long = width == 64 and tile_rows == 128  # 64 rows per warp would take twice as long to compile and leave a scheduler 1 or 2 warps
        most_rows = 2048 // width if width > 64 else 32 if more or few or long else 64
        warps = max(-(-tile_rows // most_rows), 4 if per_block <= FEW_TILES else 2 if per_block <= 6 else 1)
        even = 1 << (warps - 1).bit_length()  # so that each warp has the same number of rows
        warps = min(even, tile_rows // 16, 8 if tile_rows > 64 else 4)
        row_tiles = tile_rows // (16 * warps)
    return _Layout(warps, row_tiles, 256 if row_tiles * width > 128 else 384)


def shared_limit(gpu: Gpu) -> int:
    """Return how many bytes of shared memory a block may have, or fewer inside :func:`limit_shared_memory`."""
    return gpu.shared_limit if _shared_limit is None else min(gpu.shared_limit, _shared_limit)


def next_fit(ptr: Tensor, tile_nodes: int = 64) -> Tensor:
    """Return tiles of consecutive molecules for a batch that has none.

    This reads `ptr` on the host, which is impossible while a CUDA graph is captured. Each molecule is a tile of its own then.

    Args:
        ptr: The first atom of each molecule, int32 [B + 1].
        tile_nodes: The most atoms of a tile of several molecules.

    Returns:
        The first molecule of each tile, int32 [tiles + 1].
    """
    num_graphs = ptr.shape[0] - 1
    if ptr.is_cuda and torch.cuda.is_current_stream_capturing():
        return torch.arange(num_graphs + 1, dtype=torch.int32, device=ptr.device)
    first_atoms = ptr.tolist()
    tiles, begin = [0], 0
    for graph in range(num_graphs):
        if first_atoms[graph + 1] - first_atoms[begin] > tile_nodes and graph > begin:
            tiles.append(graph)
            begin = graph
    return torch.tensor([*tiles, num_graphs], dtype=torch.int32, device=ptr.device)
