"""How the weight gradients of a network that runs layer by layer are divided among blocks and launches."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from molgcn.cuda_runtime.launch import Gpu
from molgcn.ops.gcn_layers_plan import MAX_TABLE, fit_together, padded_width
from molgcn.ops.gcn_network import GcnCall
from molgcn.ops.gcn_tile_plan import shared_limit

_ATOMS = 32  # the number of atoms that a weight gradient reads at a time
_ROUND = 128  # the start and the end of a round of blocks take as long as this many atoms
_STAGES = {32: 2, 64: 2, 96: 2, 128: 4}  # the most steps whose rows are on their way, by size of the tile
_BLOCKS = {32: 4, 64: 3, 96: 2, 128: 1}  # the most blocks on a multiprocessor


@dataclass(frozen=True)
class WeightBlocks:
    """How the weight gradients of some layers are divided among blocks.

    Attributes:
        tile: The number of rows and of columns of a gradient that a block computes.
        stages: The number of steps whose rows are on their way to shared memory.
        min_blocks: The number of blocks that a multiprocessor has shared memory and registers for.
        num_tiles: The number of tiles of all these layers.
        splits: The number of shares that the atoms are split into.
        atoms_per_split: The number of atoms of each share.
    """

    tile: int
    stages: int
    min_blocks: int
    num_tiles: int
    splits: int
    atoms_per_split: int

    @property
    def threads(self) -> int:
        """The number of threads of a block."""
        return 512 if self.tile > 96 else max(128, 2 * self.tile)

    @property
    def shared_bytes(self) -> int:
        """The shared memory of a block in bytes."""
        return _shared_bytes(self.tile, self.stages)

    @property
    def partial_bytes(self) -> int:
        """The size of the shares' sums in bytes."""
        return 4 * self.splits * self.num_tiles * self.tile**2


def _shared_bytes(tile: int, stages: int) -> int:
    """Return the shared memory of a block in bytes: two steps' numbers as high and low, and the rows on their way. bf16 needs less."""
    return 2 * 4 * _ATOMS * (2 * (tile + 8) + stages * tile) + 16


def weight_blocks(call: GcnCall, first_layer: int, num_layers: int, gpu: Gpu) -> WeightBlocks:
    """Return the division for `num_layers` layers from `first_layer` on.

    There are as many blocks as multiprocessors have room for in one round, or in two where that is less work for each of them. As many
    stages are used as leave room for these blocks. Each block has at least 128 atoms, unless the batch has fewer.
    """
    num_nodes, num_features = call.graph.num_nodes, call.network.in_channels
    width = padded_width(call.network.hidden_channels)
    fitting = [tile for tile in (128, 96, 64) if _shared_bytes(tile, 1) <= shared_limit(gpu)]
    tile = 32 if width <= 32 else min(fitting or [32], key=lambda tile: -(-width // tile) * tile)  # large tiles read G and H less often
    min_blocks, stages = max(
        (count, stages)
        for count, stages in product(range(1, _BLOCKS[tile] + 1), range(1, _STAGES[tile] + 1))
        if fit_together(count, _shared_bytes(tile, stages), gpu)
    )
    across = -(-width // tile)
    first = -(-padded_width(num_features) // tile) * across if first_layer == 0 else 0
    num_tiles = first + (num_layers - (first_layer == 0)) * across**2
    divisions, at_once = [], min_blocks * gpu.num_multiprocessors
    for rounds in (1, 2):  # with one round many multiprocessors may be idle
        splits = max(1, min(rounds * at_once // num_tiles, num_nodes // 128))
        atoms_per_split = -(-max(num_nodes, 1) // (splits * _ATOMS)) * _ATOMS
        splits = -(-max(num_nodes, 1) // atoms_per_split)
        divisions.append((-(-num_tiles * splits // at_once) * (atoms_per_split + _ROUND), splits, atoms_per_split))
    _, splits, atoms_per_split = min(divisions)
    return WeightBlocks(tile, stages, min_blocks, num_tiles, splits, atoms_per_split)


def layers_together(call: GcnCall, gpu: Gpu) -> int:
    """Return how many layers' weight gradients one launch computes: as many as there is memory for their G = Â dZ."""
    plane = 4 * call.graph.num_nodes * padded_width(call.network.hidden_channels)
    return max(1, min(call.network.num_layers, MAX_TABLE, gpu.gradient_bytes // max(plane, 1)))


def weight_spans(call: GcnCall, gpu: Gpu) -> list[tuple[int, int, WeightBlocks]]:
    """Return the first layer, the end and the division of each launch that computes weight gradients, the last layers first."""
    together = layers_together(call, gpu)
    spans = [(max(0, end - together), end) for end in range(call.network.num_layers, 0, -together)]
    return [(first, end, weight_blocks(call, first, end - first, gpu)) for first, end in spans]
