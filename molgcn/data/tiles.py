"""Tiles: runs of whole molecules that share a fixed number of node places on one multiprocessor or in one core's cache."""

from __future__ import annotations

from bisect import bisect_right
from importlib.util import find_spec
from itertools import pairwise

import numpy as np

TILE_SIZES = (64, 128)
HAS_EXTENSION = find_spec("molgcn._cpu") is not None


def tile_size(max_atoms: int) -> int:
    """Node places of a tile, T: 64, or 128 where a molecule needs it. Still larger molecules get a run of their own."""
    return TILE_SIZES[0] if max_atoms <= TILE_SIZES[0] else TILE_SIZES[1]


def best_fit(sizes: np.ndarray, tile_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Orders molecules so that consecutive runs fill tiles: best fit by decreasing size.

    Each molecule, largest first, goes into the open tile that it fills best; a new tile is opened when it fits into none. Ties go to the
    molecule that came first and to the tile that reached its filling last, so the result depends on nothing but the sizes.

    Args:
        sizes: int [B], atoms a molecule.
        tile_nodes: T, node places a tile.

    Returns:
        `order` int64 [B], the molecules' places in `sizes`, tile after tile; molecules larger than a tile come last.
        `tile_ptr` int32 [tiles + 1], the first molecule of each tile in that order; a molecule larger than a tile is alone.

    Source: D. S. Johnson, "Near-optimal bin packing algorithms", MIT 1973 (best fit decreasing: at most 11/9 of the optimum).
    """
    sizes = np.asarray(sizes, np.int64)
    by_size = np.argsort(-sizes, kind="stable")
    tiles: list[list[int]] = []
    free: list[list[int]] = [[] for _ in range(tile_nodes + 1)]  # free[r]: tiles with r places left
    large: list[int] = []
    for molecule, size in zip(by_size.tolist(), sizes[by_size].tolist(), strict=True):
        if size > tile_nodes:
            large.append(molecule)
            continue
        room = next((r for r in range(size, tile_nodes + 1) if free[r]), None)
        if room is None:
            tile, room = len(tiles), tile_nodes
            tiles.append([])
        else:
            tile = free[room].pop()
        tiles[tile].append(molecule)
        free[room - size].append(tile)
    runs = tiles + [[molecule] for molecule in large]
    order = np.array([molecule for run in runs for molecule in run], np.int64)
    tile_ptr = np.zeros(len(runs) + 1, np.int32)
    np.cumsum([len(run) for run in runs], out=tile_ptr[1:])
    return order, tile_ptr


def plan_tiles(order: np.ndarray, batch_ptr: np.ndarray, sizes: np.ndarray, tile_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Reorders, in place, the molecules of every batch by :func:`best_fit`; in C++ where the extension is built.

    Args:
        order: int64 [n], molecules, batch after batch.
        batch_ptr: int64 [K + 1], first molecule of each batch in `order`.
        sizes: int64 [M], atoms a molecule.
        tile_nodes: T, node places a tile.

    Returns:
        `tile_ptr` int32, the batches' tile pointers one after the other, each starting with 0.
        `tile_starts` int64 [K + 1], where each batch's start.
    """
    if HAS_EXTENSION:
        from molgcn._cpu import plan_tiles as plan

        return plan(order, batch_ptr, sizes, tile_nodes)
    tiles = []
    for start, end in pairwise(batch_ptr):
        places, tile_ptr = best_fit(sizes[order[start:end]], tile_nodes)
        order[start:end] = order[start:end][places]
        tiles.append(tile_ptr)
    return np.concatenate(tiles), np.cumsum([0] + [len(tile_ptr) for tile_ptr in tiles])


def next_fit(ptr: np.ndarray, tile_nodes: int) -> np.ndarray:
    """Tiles of molecules whose order is given: each run takes as many as fit.

    Args:
        ptr: int [B + 1], first atom of each molecule.
        tile_nodes: T, node places a tile.

    Returns:
        `tile_ptr` int32 [tiles + 1], the first molecule of each tile; a molecule larger than a tile is alone.
    """
    first_atoms = ptr.tolist()  # NumPy takes microseconds for each look-up
    starts, count = [0], len(ptr) - 1
    while starts[-1] < count:
        start = starts[-1]
        end = bisect_right(first_atoms, first_atoms[start] + tile_nodes) - 1
        starts.append(min(max(end, start + 1), count))
    return np.array(starts, np.int32)


def max_tiles(num_graphs: int, num_nodes: int, num_large: int, tile_nodes: int) -> int:
    """Tiles that always suffice for `num_graphs` molecules of `num_nodes` atoms, of which `num_large` exceed a tile.

    Two consecutive tiles of either planner together hold more than T atoms, so there are at most 2 N / T + 1 of them.
    """
    return min(num_graphs, 2 * num_nodes // tile_nodes + 1 + num_large)
