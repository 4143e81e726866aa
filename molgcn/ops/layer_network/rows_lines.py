"""How kernels share rows that each need a whole row at a time: `cuda/rows_lines.cuh`."""

from __future__ import annotations

from molgcn.ops.layer_network.rows_launches import THREADS, Tile


def line_tile(stride: int) -> Tile:
    """Return how many lanes of a warp, a power of two, go over a row together."""
    quads = max(1, stride // 4)
    return Tile(min(32, 1 << (quads - 1).bit_length()), 1)


def line_grid(num_rows: int, tile: Tile) -> int:
    """Return how many blocks there are for one row a line."""
    return max(1, -(-num_rows // (THREADS // tile.lanes)))
