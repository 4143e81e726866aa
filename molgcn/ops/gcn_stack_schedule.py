"""How long a block takes for its tiles, from what tiles take that share a multiprocessor's four schedulers."""

from __future__ import annotations

from functools import cache

from molgcn.cuda_runtime.launch import Gpu

SMALL_TILE = 48  # places: quicker than 64, but holds less
MIDDLE_TILE = 96  # places, for up to 32 features: six such tiles keep twelve warps equally busy
_TIMES = (0.0, 1.0, 1.3, 1.65, 2.0)  # of a tile when so many warps share a scheduler, measured (docs/decisions/cuda_tried.md)
_LOWER_TIMES = (0.0, 1.0, 1.3, 1.53, 1.8)  # with TF32 and bf16, likewise
_TIMES_OF_TILES = {SMALL_TILE: 0.82, 64: 1.0, MIDDLE_TILE: 0.87}  # of a warp's share of such a tile, measured too


@cache
def quickest_groups(tiles: int, most: int, warps: int) -> int:
    """Of a block with so many tiles: the number whose busiest scheduler is done first, of equally good ones the smallest."""
    return min(range(1, most + 1), key=lambda groups: (block_time(tiles, groups, warps), groups))


@cache
def block_time(tiles: int, groups: int, warps: int, times: tuple[float, ...] = _TIMES) -> float:
    """Until a block's busiest scheduler is done, in times of a tile whose warp has it to itself."""
    rounds = [tiles // groups + (group < tiles % groups) for group in range(groups) for _ in range(warps)]  # of each warp
    schedulers = [rounds[first::4] for first in range(4)]
    return max(sum(times[sum(left > done for left in each)] for done in range(max(rounds))) for each in schedulers)


def time_of_tiles(num_tiles: int, tile_nodes: int, gpu: Gpu, precision: str = "float32") -> float:
    """Of a batch in so many tiles of 48, 64 or 96 places, H = 32 without norm and residual, as :func:`block_time` counts."""
    tiles, warps = -(-num_tiles // gpu.num_multiprocessors), 2 if tile_nodes == MIDDLE_TILE else 1
    times = _TIMES if precision == "float32" else _LOWER_TIMES
    return _TIMES_OF_TILES[tile_nodes] * block_time(tiles, quickest_groups(tiles, 12 // warps, warps), warps, times)
