"""How all layers of a pass with batch statistics share one launch, where the blocks of a batch fit on the GPU together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from molgcn.cuda_runtime.launch import Gpu
from molgcn.ops.gcn_layers_plan import MAX_TABLE, layers_together, padded_width
from molgcn.ops.gcn_stack_plan import shared_limit
from molgcn.ops.message_network import NetworkCall

_CLUSTERS = (8, 4, 2)  # fewer sums to read with more blocks, but fewer of them find room
_MOST_TILES = 5
_BATCH = 8  # sums that a lane reads together
_GUESTS = 16  # rows for atoms of other blocks


@dataclass(frozen=True)
class Chain:
    """How the chain's kernels divide the atoms.

    Attributes:
        tiles: times 8 atoms of a block.
        cluster: blocks that add their sums up and read weights together.
        num_blocks: of atoms, with the room of padded batches, in whole clusters.
        width: columns of the features in memory.
    """

    tiles: int
    cluster: int
    num_blocks: int
    width: int

    @property
    def rows(self) -> int:
        """Atoms of a block."""
        return 8 * self.tiles

    @property
    def threads(self) -> int:
        """Of a block: a warp for 16 columns, and more where those are few."""
        chunks = self.width // 16
        return 32 * chunks * ((7 + chunks) // chunks)

    @property
    def atoms_per_part(self) -> int:
        """Atoms that a cluster's sums are of."""
        return self.rows * self.cluster

    @property
    def sums_bytes(self) -> int:
        """Of a layer's sums and the next one's."""
        parts = -(-self.num_blocks // self.cluster // (2 * _BATCH)) * 2 * _BATCH
        return 2 * 4 * parts * 2 * self.width

    @property
    def shared_bytes(self) -> int:
        """Of a block: `struct Shared` in cuda/gcn_chain.cuh."""
        stride = self.width + 16 if self.width % 32 == 0 else self.width
        rows = 4 * (3 * self.rows + _GUESTS + 1) * stride
        exchange = 4 * 2 * 16 * -(-self.width // 16 // self.cluster) * self.cluster
        return 4 * self.width**2 + rows + 40 * self.rows + 4 * 6 * self.width + exchange + 32 + 4 * _GUESTS

    @property
    def defines(self) -> dict[str, int]:
        """The macros of the division."""
        return {"TILES": self.tiles, "CLUSTER": self.cluster}


def chains(call: NetworkCall, gpu: Gpu) -> Iterator[Chain]:
    """Divisions that may fit, the best first; none where layers have to be launched one by one."""
    num_nodes, num_features = call.graph.x.shape
    width = padded_width(call.spec.hidden_channels)
    if not (call.batch_statistics and gpu.has_clusters and num_nodes > 0 and padded_width(num_features) <= width):
        return
    if layers_together(call, gpu) < call.spec.num_layers or call.spec.num_layers > MAX_TABLE:
        return
    for tiles in range(1, _MOST_TILES + 1):
        for cluster in _CLUSTERS:
            chain = Chain(tiles, cluster, -(-num_nodes // (8 * tiles * cluster)) * cluster, width)
            if chain.num_blocks <= gpu.num_multiprocessors and chain.shared_bytes <= shared_limit(gpu):
                yield chain
