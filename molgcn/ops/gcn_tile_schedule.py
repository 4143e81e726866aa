"""Estimate how long a block takes for its tiles, from measured times of tiles that share a multiprocessor's four schedulers."""

from __future__ import annotations

from functools import cache

from molgcn.cuda_runtime.launch import Gpu

SMALL_TILE = 48  # atoms: faster than 64, but holds fewer
MIDDLE_TILE = 96  # atoms, for up to 32 features: six such tiles keep twelve warps equally busy
# Times measured on an H100 (docs/decisions/cuda_tile_sizes.md). They only choose among plans that give the same results, so that
# another GPU may run a plan that is not its fastest.
_TIMES = (0.0, 1.0, 1.3, 1.65, 2.0)  # time of a tile if 0, 1, ... 4 warps share a scheduler
_LOWER_TIMES = (0.0, 1.0, 1.3, 1.53, 1.8)  # time of a tile with TF32 or bf16 products
_TIMES_OF_TILES = {SMALL_TILE: 0.82, 64: 1.0, MIDDLE_TILE: 0.87}  # time of a warp's share of a tile, by atoms of the tile


@cache
def quickest_groups(tiles: int, most: int, warps: int) -> int:
    """Return the number of groups with the smallest :func:`block_time`, and the smallest of equally fast ones.

    Args:
        tiles: The number of tiles of a block.
        most: The most groups of a block.
        warps: The number of warps of a group.
    """
    return min(range(1, most + 1), key=lambda groups: (block_time(tiles, groups, warps), groups))


@cache
def block_time(tiles: int, groups: int, warps: int, times: tuple[float, ...] = _TIMES) -> float:
    """Return the time until a block's busiest scheduler is done. The unit is the time of a tile whose warp has a scheduler to itself.

    Args:
        tiles: The number of tiles of the block.
        groups: The number of groups of the block.
        warps: The number of warps of a group.
        times: The time of a tile, by the number of warps that share a scheduler.
    """
    rounds = [tiles // groups + (group < tiles % groups) for group in range(groups) for _ in range(warps)]  # the tiles of each warp
    schedulers = [rounds[first::4] for first in range(4)]
    return max(sum(times[sum(left > done for left in each)] for done in range(max(rounds))) for each in schedulers)


def time_of_tiles(num_tiles: int, tile_nodes: int, gpu: Gpu, precision: str = "float32") -> float:
    """Return the time of a batch in units of :func:`block_time`, for a network with H = 32 and without norm and residual.

    Args:
        num_tiles: The number of tiles of the batch.
        tile_nodes: The most atoms of a tile: 48, 64 or 96.
        gpu: The properties of the GPU.
        precision: "float32", "tf32" or "bf16".
    """
    tiles, warps = -(-num_tiles // gpu.num_multiprocessors), 2 if tile_nodes == MIDDLE_TILE else 1
    times = _TIMES if precision == "float32" else _LOWER_TIMES
    return _TIMES_OF_TILES[tile_nodes] * block_time(tiles, quickest_groups(tiles, 12 // warps, warps), warps, times)
