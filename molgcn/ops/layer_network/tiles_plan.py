"""Which networks run on tiles of whole molecules on CUDA, and how a launch divides registers and shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch

from molgcn.cuda_runtime.launch import Gpu, gpu
from molgcn.ops.layer_network.backward import backward_of
from molgcn.ops.layer_network.call import LayerNetworkCall
from molgcn.ops.layer_network.products_plan import in_chunks
from molgcn.ops.layer_network.program import Program
from molgcn.ops.layer_network.steps import BONDS, Gather, Linear
from molgcn.ops.layer_network.tiles_program import TilePass, backward_passes, forward_pass

LAYERS_OF_LAUNCH = 4  # the number of layers that a launch of a backward pass takes, whose gradients are kept until then
_FEW_ATOMS = 8192  # up to this many atoms, tiles leave multiprocessors idle
_AGGREGATIONS = ("sum", "mean", "gcn", "gcn_loops")  # the aggregations of cuda/tile_gather.cuh
_MAX_INSTRUCTIONS = 320  # the most instructions that fit into a kernel's arguments
_MAX_TILE = 128  # the most atoms of a tile
_MAX_WIDTH = 64  # the most columns of a value; wider tiles have not been measured
_MAX_CODES = 16  # the most distinct bonds, whose gradients a warp sums in shared memory
_WARPS = 16  # warps that a multiprocessor has registers for
_LISTED_BONDS = 4  # bonds of each row that are listed in shared memory: `most_listed` in cuda/tile_gather.cuh
_ROOM = 64  # arguments have room for a multiple of this many instructions, so that networks of similar depth share a kernel
_RESERVED_BYTES = 1024  # shared memory that CUDA takes for each block


def pays(call: LayerNetworkCall) -> bool:
    """Return whether tiles compute a call faster than a launch for each step, as measured (docs/decisions/tiles_on_cuda.md)."""
    return call.graph.x.is_cuda and call.graph.num_nodes > _FEW_ATOMS and why_not(call) is None and fits(call, gpu(call.graph.x.device))


def why_not(call: LayerNetworkCall) -> str | None:
    """Return the reason that tiles cannot compute a call; None if they can."""
    graph, program = call.graph, call.program
    if graph.x.dtype != torch.float32:
        return "it is not in float32"
    if not 0 < graph.most_in_tile <= _MAX_TILE or graph.most_in_tile % 16 > 0:
        return f"no tile is promised to have at most {_MAX_TILE} atoms"
    if call.batch_statistics:
        return "batch norm in training couples all molecules"
    if program.has_edges:
        return "it has rows of directed bonds"
    if program.attends:
        return "it attends"
    if program.pool == "none" or len(program.outs) > 1:
        return "it does not pool the last layer's states alone"
    if program.pool == "max" or any(step.aggr not in _AGGREGATIONS for step in program.steps if isinstance(step, Gather)):
        return "it takes maxima"
    if _widest(program) > _MAX_WIDTH:
        return f"it has more than {_MAX_WIDTH} columns"
    if program.edge_channels != program.hidden_channels and any(getattr(step, "bonds", None) == BONDS for step in program.steps):
        return "only its first layer takes the bonds' rows as they are"
    if program.edge_channels is not None and graph.code is not None and graph.num_bond_rows > _MAX_CODES:
        return f"it has more than {_MAX_CODES} distinct bonds"
    if _num_instructions(program) > _MAX_INSTRUCTIONS:
        return f"its forward pass is more than {_MAX_INSTRUCTIONS} instructions"
    return None


@cache
def _num_instructions(program: Program) -> int:
    return len(forward_pass(program, frozenset(range(len(program.values)))).instructions)


def fits(call: LayerNetworkCall, on: Gpu) -> bool:
    """Return whether a block of a GPU has the shared memory that tiles need for a call."""
    program, graph = call.program, call.graph
    backward = backward_of(program, True, True, LAYERS_OF_LAUNCH)
    passes = backward_passes(program, backward, coded=graph.code is not None)
    plans = TilePlan.of(call, (forward_pass(program, frozenset()),), on), TilePlan.of(call, passes, on, sums_codes=True)
    return max(plan.shared_bytes for plan in plans) <= on.shared_limit


def _widest(program: Program) -> int:
    """Return the most columns of a value of atoms."""
    return max(value.width for value in program.values if value.rows == "atoms")


@dataclass(frozen=True)
class TilePlan:
    """How the launches of a pass divide registers and shared memory.

    Attributes:
        warps: The number of warps of a block, each of which has 16 rows of a tile.
        chunks: The number of chunks of 16 columns in the widest value.
        num_slots: The number of values that a tile has room for in shared memory.
        num_codes: The number of distinct bonds whose gradients a warp sums in shared memory.
        buffer: The size of the largest weight in shared memory, in numbers.
        room: The number of instructions that the arguments have room for.
        gpu: The properties of the GPU.
    """

    warps: int
    chunks: int
    num_slots: int
    num_codes: int
    buffer: int
    room: int
    gpu: Gpu

    @staticmethod
    def of(call: LayerNetworkCall, passes: Sequence[TilePass], gpu: Gpu, *, sums_codes: bool = False) -> TilePlan:
        """Return the plan of the launches of a pass, which share a kernel.

        Args:
            call: The network and the batch.
            passes: The instructions of each launch.
            gpu: The properties of the GPU.
            sums_codes: Whether the gradients of distinct bonds are summed.
        """
        program, graph = call.program, call.graph
        num_slots, most = max(each.num_slots for each in passes), max(len(each.instructions) for each in passes)
        codes = graph.num_bond_rows if sums_codes and graph.code is not None and call.program.edge_channels is not None else 0
        products = [step for step in program.steps if isinstance(step, Linear) and program.values[step.source].rows == "atoms"]
        sizes = [[in_chunks(program.values[value].width) for value in (step.source, step.out)] for step in products]
        buffer = max(256 * rows * columns + 2 * 16 * max(rows, columns) for rows, columns in sizes)
        warps, room = graph.most_in_tile // 16, -(-most // _ROOM) * _ROOM
        return TilePlan(warps, in_chunks(_widest(program)), num_slots, codes, buffer, room, gpu)

    @property
    def shared_bytes(self) -> int:
        """The shared memory of a block in bytes."""
        stride = 16 * self.chunks
        per_row = 1 + _LISTED_BONDS + self.num_slots * stride
        return 4 * (16 * self.warps * per_row + 2 * self.buffer + 2 * self.warps * self.num_codes * stride)

    @property
    def min_blocks(self) -> int:
        """The number of blocks that a multiprocessor has registers and shared memory for."""
        by_memory = (self.gpu.shared_limit + _RESERVED_BYTES) // (self.shared_bytes + _RESERVED_BYTES)
        return max(1, min(_WARPS // self.warps, by_memory))

    def num_blocks(self, num_tiles: int) -> int:
        """Return the number of blocks. Each takes several tiles if there are many."""
        return max(1, min(num_tiles, self.min_blocks * self.gpu.num_multiprocessors))
