"""How `molgcn::gcn_stack` lays out a batch on a GPU: tiles, groups of warps, shared memory, and what forward keeps for backward."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from molgcn.ops.gcn_stack import StackInputs
from molgcn.ops.launch import Gpu

MAX_HIDDEN = 256
PLACES = 64  # node places of a tile
_BLOCK_FLOATS = 256  # one 16 x 16 block of a weight gradient
_MAX_GROUPS = 15  # of a block: hardware has 16 barriers, the first is the whole block's
_shared_limit: int | None = None


@contextmanager
def limit_shared_memory(num_bytes: int) -> Iterator[None]:
    """Plans for GPUs with less shared memory a block than this one: 99 KB on RTX 30 and 40, 163 on A100, 227 on H100."""
    global _shared_limit
    before, _shared_limit = _shared_limit, num_bytes
    try:
        yield
    finally:
        _shared_limit = before


def width_of(hidden_channels: int) -> int:
    """Columns of the features on the device, with padding."""
    return 16 if hidden_channels <= 16 else (hidden_channels + 31) // 32 * 32


class Saved:
    """Where forward puts what backward needs in the one tensor `saved`.

    Attributes:
        width: columns of the features, :func:`width_of` H.
        offsets: in bytes, of each array; shapes are in `struct Parameters` of cuda/gcn_stack.cuh.
        num_bytes: of all.
    """

    def __init__(self, inputs: StackInputs) -> None:
        num_nodes, layers, norms = inputs.x.shape[0], inputs.num_layers, inputs.num_norms
        self.width = width_of(inputs.hidden_channels)
        plane = 4 * num_nodes * self.width
        mask_bytes = (self.width // 16 + 1) // 2 * 4
        sizes = {
            "arrivals": 8,
            "inputs": plane * (layers - 1),
            "normalised": plane * norms,
            "deviations": 4 * num_nodes * norms,
            "last": plane if inputs.pool == "max" else 0,
            "masks": num_nodes * mask_bytes * layers,
        }
        self.offsets: dict[str, int] = {}
        self.num_bytes = 0
        for name, size in sizes.items():
            self.offsets[name] = self.num_bytes
            self.num_bytes += (size + 127) // 128 * 128


@dataclass(frozen=True)
class Plan:
    """One kernel's layout.

    Attributes:
        grid: blocks, one a multiprocessor.
        groups: of warps in a block; each works on one tile.
        warps: of a group.
        row_tiles: 16 rows each, of a warp.
        max_threads: of a block; more would leave each too few registers.
        shared_bytes: of a block.
        gradient_size: numbers in a block's sums of gradients.
        shared_gradients: the sums lie in shared memory.
    """

    grid: int
    groups: int
    warps: int
    row_tiles: int
    max_threads: int
    shared_bytes: int
    gradient_size: int = 0
    shared_gradients: bool = False

    @property
    def threads(self) -> int:
        """Of a block."""
        return 32 * self.warps * self.groups

    @property
    def defines(self) -> dict[str, int]:
        """The macros that depend on the plan."""
        return {
            "WARPS": self.warps,
            "ROW_TILES": self.row_tiles,
            "MAX_THREADS": self.max_threads,
            "SHARED_GRADIENTS": int(self.shared_gradients),
        }


def forward_plan(inputs: StackInputs, gpu: Gpu) -> Plan:
    """For the forward of a batch with `tile_ptr`."""
    return _plan(inputs, gpu)


def backward_plan(inputs: StackInputs, gpu: Gpu) -> Plan:
    """For the backward of a batch with `tile_ptr`: the sums of gradients lie in shared memory if enough of it is left."""
    layers, chunks, warps = inputs.num_layers, width_of(inputs.hidden_channels) // 16, _warps(inputs, gpu)
    rows = (inputs.x.shape[1] + 15) // 16 + (layers - 1) * chunks
    kinds = 1 if inputs.norm is None else 3
    size = rows * chunks * _BLOCK_FLOATS + layers * warps * kinds * 16 * chunks
    turns = 4 * (rows + layers * warps)
    shared = 4 * size <= _limit(gpu) * 6 // 10
    plan = _plan(inputs, gpu, turns + (4 * size if shared else 0))
    return replace(plan, gradient_size=size, shared_gradients=shared)


def _plan(inputs: StackInputs, gpu: Gpu, reserved: int = 0) -> Plan:
    """As few groups as finish a block's tiles in the fewest rounds."""
    assert inputs.tile_ptr is not None
    num_tiles, width, warps = inputs.tile_ptr.shape[0] - 1, width_of(inputs.hidden_channels), _warps(inputs, gpu)
    max_threads = 384 if width <= 128 else 256
    buffer = 4 * PLACES * max(width, 32)
    most = max(1, min(_MAX_GROUPS, max_threads // (32 * warps), (_limit(gpu) - reserved) // buffer))
    grid = max(1, min(num_tiles, gpu.num_multiprocessors))
    tiles = max(1, -(-num_tiles // grid))
    groups = -(-tiles // -(-tiles // most))
    return Plan(grid, groups, warps, PLACES // (16 * warps), max_threads, reserved + groups * buffer)


def _warps(inputs: StackInputs, gpu: Gpu) -> int:
    """Of a group: more finish a tile sooner, fewer read the weights less often."""
    assert inputs.tile_ptr is not None
    few_tiles = inputs.tile_ptr.shape[0] - 1 <= 3 * gpu.num_multiprocessors
    width = width_of(inputs.hidden_channels)
    return 1 if width == 16 else 4 if width > 32 or few_tiles else 2


def _limit(gpu: Gpu) -> int:
    return gpu.shared_limit if _shared_limit is None else min(gpu.shared_limit, _shared_limit)


def next_fit(ptr: Tensor) -> Tensor:
    """Tiles of consecutive molecules for a batch that comes without: int32 [tiles + 1], first molecule of each.

    Reads `ptr` on the host, which a captured graph cannot: there each molecule is a tile.
    """
    num_graphs = ptr.shape[0] - 1
    if ptr.is_cuda and torch.cuda.is_current_stream_capturing():
        return torch.arange(num_graphs + 1, dtype=torch.int32, device=ptr.device)
    first_atoms = ptr.tolist()
    tiles, begin = [0], 0
    for graph in range(num_graphs):
        if first_atoms[graph + 1] - first_atoms[begin] > PLACES and graph > begin:
            tiles.append(graph)
            begin = graph
    return torch.tensor([*tiles, num_graphs], dtype=torch.int32, device=ptr.device)
