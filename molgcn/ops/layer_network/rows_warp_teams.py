"""Teams of threads for kernels that need a whole row at a time: `cuda/rows_warp_teams.cuh`."""

from __future__ import annotations

from molgcn.ops.layer_network.rows_launches import THREADS, Teams

_MOST_LANE_QUADS = 3  # the most quads of a lane in a team that is smaller than a warp


def warp_teams(stride: int, threads: int = THREADS) -> Teams:
    """Return the teams for rows of `stride` numbers, each of which lies within a warp and has a whole row.

    A team has 8, 16 or 32 lanes. The choice leaves the fewest lanes without columns.
    """
    quads = max(1, stride // 4)
    fitting = [lanes for lanes in (32, 16, 8) if -(-quads // lanes) <= _MOST_LANE_QUADS] or [32]
    return Teams(min(fitting, key=lambda lanes: lanes * -(-quads // lanes)), 1, threads)


def warp_team_macros(stride: int) -> dict[str, int]:
    """Return the macros of the kernels that read whole rows.

    Args:
        stride: The distance between two rows, in numbers.

    Returns:
        `LANE_QUADS`: the most quads of a row that one lane has.
    """
    return {"LANE_QUADS": -(-max(1, stride // 4) // warp_teams(stride).lanes)}


def warp_team_blocks(num_rows: int, teams: Teams) -> int:
    """Return the number of blocks if each team has one row."""
    return max(1, -(-num_rows // teams.per_block))
