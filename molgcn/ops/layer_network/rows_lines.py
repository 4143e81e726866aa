"""How threads share rows in kernels that need a whole row at a time: `cuda/rows_lines.cuh`."""

from __future__ import annotations

from molgcn.ops.layer_network.rows_launches import THREADS, Tile

_MOST_TURNS = 3  # the most turns over a row if it has fewer lanes than a warp


def line_tile(stride: int, threads: int = THREADS) -> Tile:
    """Return how the threads of a block share rows of `stride` numbers.

    A row has 8, 16 or 32 lanes, which read four numbers each in a turn. The choice leaves the fewest lanes without columns.
    """
    quads = max(1, stride // 4)
    fitting = [lanes for lanes in (32, 16, 8) if -(-quads // lanes) <= _MOST_TURNS] or [32]
    return Tile(min(fitting, key=lambda lanes: lanes * -(-quads // lanes)), 1, threads)


def line_defines(stride: int) -> dict[str, int]:
    """Return the macros of the kernels that read whole rows.

    Args:
        stride: The distance between two rows, in numbers.

    Returns:
        `TURNS`: how many times a row's lanes read four numbers each until they have read the row.
    """
    return {"TURNS": -(-max(1, stride // 4) // line_tile(stride).lanes)}


def line_grid(num_rows: int, tile: Tile) -> int:
    """Return the number of blocks if each group of lanes has one row."""
    return max(1, -(-num_rows // tile.teams))
