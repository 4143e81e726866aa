"""How one launch runs all layers of a pass with batch statistics, if all blocks of a batch fit on the GPU at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from molgcn.cuda_runtime.launch import Gpu
from molgcn.ops.gcn_layers_plan import MAX_TABLE, padded_width
from molgcn.ops.gcn_network import GcnCall
from molgcn.ops.gcn_tile_plan import shared_limit
from molgcn.ops.gcn_weights_plan import layers_together

_CLUSTERS = (8, 4, 2)  # larger clusters leave fewer sums to read, but fewer of them fit on the GPU
_MOST_TILES = 5
_BATCH = 8  # the number of sums that a lane reads at once
_HALO_ROWS = 16  # the number of rows for atoms of other blocks


@dataclass(frozen=True)
class Chain:
    """How the chain's kernels divide the atoms.

    Attributes:
        tiles: The number of tiles of 8 atoms in a block.
        cluster: The number of blocks in a cluster, which add up their sums and read weights together.
        num_blocks: The number of blocks in whole clusters, enough for all atoms that a padded batch has room for.
        width: The number of columns of the features in memory.
    """

    tiles: int
    cluster: int
    num_blocks: int
    width: int

    @property
    def rows(self) -> int:
        """The number of atoms of a block."""
        return 8 * self.tiles

    @property
    def threads(self) -> int:
        """The number of threads of a block: at least one warp for every 16 columns, and at least eight warps."""
        chunks = self.width // 16
        return 32 * chunks * ((7 + chunks) // chunks)

    @property
    def atoms_per_part(self) -> int:
        """The number of atoms of a cluster, whose sums are one part."""
        return self.rows * self.cluster

    @property
    def sums_bytes(self) -> int:
        """The bytes of two consecutive layers' sums."""
        parts = -(-self.num_blocks // self.cluster // (2 * _BATCH)) * 2 * _BATCH
        return 2 * 4 * parts * 2 * self.width

    @property
    def shared_bytes(self) -> int:
        """The shared memory of a block in bytes: `struct Shared` in cuda/gcn_chain.cuh."""
        stride = self.width + 16 if self.width % 32 == 0 else self.width
        rows = 4 * (3 * self.rows + _HALO_ROWS + 1) * stride
        exchange = 4 * 2 * 16 * -(-self.width // 16 // self.cluster) * self.cluster
        return 4 * self.width**2 + rows + 40 * self.rows + 4 * 6 * self.width + exchange + 32 + 4 * _HALO_ROWS

    @property
    def defines(self) -> dict[str, int]:
        """The macros that tell the kernels how the atoms are divided."""
        return {"TILES": self.tiles, "CLUSTER": self.cluster}


def chains(call: GcnCall, gpu: Gpu) -> Iterator[Chain]:
    """Yield the divisions that may fit, the best first. There are none if the layers must be launched one by one."""
    num_nodes, num_features = call.graph.num_nodes, call.network.in_channels
    width = padded_width(call.network.hidden_channels)
    if not (call.batch_statistics and gpu.has_clusters and num_nodes > 0 and padded_width(num_features) <= width):
        return
    if layers_together(call, gpu) < call.network.num_layers or call.network.num_layers > MAX_TABLE:
        return
    for tiles in range(1, _MOST_TILES + 1):
        for cluster in _CLUSTERS:
            chain = Chain(tiles, cluster, -(-num_nodes // (8 * tiles * cluster)) * cluster, width)
            if chain.num_blocks <= gpu.num_multiprocessors and chain.shared_bytes <= shared_limit(gpu):
                yield chain
