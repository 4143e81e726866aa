"""How kernels share rows that each need a whole row at a time: `cuda/rows_lines.cuh`."""

from __future__ import annotations

from molgcn.ops.layer_network.rows_launches import THREADS, Tile

_MOST_TURNS = 3  # of fewer lanes than a warp's


def line_tile(stride: int, threads: int = THREADS) -> Tile:
    """Return how many lanes, a warp or a part of one, go over a row together: as many as leave few of them without columns."""
    quads = max(1, stride // 4)
    fitting = [lanes for lanes in (32, 16, 8) if -(-quads // lanes) <= _MOST_TURNS] or [32]
    return Tile(min(fitting, key=lambda lanes: lanes * -(-quads // lanes)), 1, threads)


def line_defines(stride: int) -> dict[str, int]:
    """Return the macros of kernels on rows of `stride` numbers."""
    return {"TURNS": -(-max(1, stride // 4) // line_tile(stride).lanes)}


def line_grid(num_rows: int, tile: Tile) -> int:
    """Return how many blocks there are for one row a line."""
    return max(1, -(-num_rows // tile.teams))
