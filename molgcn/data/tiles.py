"""Tiles: runs of whole molecules of at most a fixed number of atoms, for one multiprocessor or one core's cache."""

from __future__ import annotations

from bisect import bisect_right
from importlib.util import find_spec
from itertools import pairwise

import numpy as np

TILE_SIZES = (64, 128)
HAS_EXTENSION = find_spec("molgcn._cpu") is not None


def tile_size(max_atoms: int) -> int:
    """Return the number of atoms that a tile has room for, T: 64, or 128 where a molecule needs it.

    A molecule of more than 128 atoms is a tile of its own.
    """
    return TILE_SIZES[0] if max_atoms <= TILE_SIZES[0] else TILE_SIZES[1]


def fill_tiles(sizes: np.ndarray, tile_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Order molecules so that consecutive runs fill tiles, and use nearly as few tiles as possible.

    The method is sequential value correction. A molecule of s atoms has a value v_s, which starts as v_s(0) = 16 s (8 T + s). Each step
    chooses, among the molecules left, those that fit into one tile and have the greatest value together, and fills as many tiles with this
    pattern as there are molecules for. For each size in the pattern, v_s then moves towards v_s(0) T / (atoms in the tile), by half of the
    fraction of all molecules of this size that the step used. Sizes that leave tiles partly empty thus come sooner. There are at most two
    passes (four from 1,024 molecules on), each of which starts with the values of the one before. The pass with the fewest tiles
    is taken. All numbers are integers, so that the result depends on the sizes only.

    Args:
        sizes: int [B], number of atoms of each molecule.
        tile_nodes: number of atoms that a tile has room for, T.

    Returns:
        - `order`: int64 [B], positions of the molecules in `sizes`, tile after tile. Molecules larger than a tile come last.
        - `tile_ptr`: int32 [tiles + 1], first molecule of each tile in that order. A molecule larger than a tile has its own.

    Source: G. Belov, G. Scheithauer, "Setup and open-stacks minimization in one-dimensional stock cutting", INFORMS J. Comput. 19, 2007.
    """
    sizes = np.maximum(np.asarray(sizes, np.int64), 1)
    counts = np.bincount(sizes[sizes <= tile_nodes], minlength=tile_nodes + 1)
    by_size = np.split(np.argsort(sizes, kind="stable")[: counts.sum()], np.cumsum(counts)[:-1])
    left = [iter(molecules.tolist()) for molecules in by_size]
    runs = [
        [next(left[size]) for size, molecules in pattern for _ in range(molecules)]
        for tiles, pattern in _patterns(counts, tile_nodes)
        for _ in range(tiles)
    ]
    runs += [[molecule] for molecule in np.argsort(-sizes, kind="stable")[: len(sizes) - counts.sum()].tolist()]
    order = np.array([molecule for run in runs for molecule in run], np.int64)
    tile_ptr = np.zeros(len(runs) + 1, np.int32)
    np.cumsum([len(run) for run in runs], out=tile_ptr[1:])
    return order, tile_ptr


_Pattern = list[tuple[int, int]]  # sizes, and the number of molecules of each


def _patterns(counts: np.ndarray, tile_nodes: int) -> list[tuple[int, _Pattern]]:
    """Return the patterns that hold `counts` molecules of each size, and the number of tiles for each pattern."""
    size = np.arange(tile_nodes + 1)
    initial = 16 * size * (8 * tile_nodes + size)
    values, best, fewest = initial.copy(), [], -1
    for _ in range(2 if counts.sum() < 1024 else 4):
        if fewest >= 0 and (fewest - 1) * tile_nodes < counts @ size:
            break  # fewer tiles cannot hold the molecules
        plan, stock = [], counts.copy()
        while stock.any():
            pattern = _most_valuable(values, stock)
            tiles = min(int(stock[size]) // molecules for size, molecules in pattern)
            filled = sum(size * molecules for size, molecules in pattern)
            for size_, molecules in pattern:
                used, both = tiles * molecules, 2 * counts[size_]
                stock[size_] -= used
                values[size_] = (values[size_] * (both - used) + initial[size_] * tile_nodes // filled * used) // both
            plan.append((tiles, pattern))
        total = sum(tiles for tiles, _ in plan)
        if fewest < 0 or total < fewest:
            best, fewest = plan, total
    return best


def _most_valuable(values: np.ndarray, stock: np.ndarray) -> _Pattern:
    """Return the molecules in stock that fit into a tile and have the greatest value together, large sizes first."""
    places = len(values)
    sizes, reached = np.flatnonzero(stock).tolist(), [np.zeros(places, np.int64)]
    for size in sizes:
        before, after = reached[-1], reached[-1].copy()
        for molecules in range(1, min(int(stock[size]), (places - 1) // size) + 1):
            taken = molecules * size
            np.maximum(after[taken:], before[:-taken] + molecules * values[size], out=after[taken:])
        reached.append(after)
    pattern, room = [], places - 1
    for size, before, after in zip(reversed(sizes), reversed(reached[:-1]), reversed(reached[1:]), strict=True):
        molecules = 0
        while before[room - molecules * size] + molecules * values[size] != after[room]:
            molecules += 1
        if molecules:
            pattern.append((size, molecules))
            room -= molecules * size
    return pattern


def plan_tiles(order: np.ndarray, batch_ptr: np.ndarray, sizes: np.ndarray, tile_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Reorder the molecules of every batch in place by :func:`fill_tiles`, in C++ where the extension is built.

    For the arguments and the result, `tile_ptr` and `tile_starts`, see :class:`molgcn.data.sampler.EpochPlan`.
    """
    if HAS_EXTENSION:
        from molgcn._cpu import plan_tiles as plan

        return plan(order, batch_ptr, sizes, tile_nodes)
    tiles = []
    for start, end in pairwise(batch_ptr):
        places, tile_ptr = fill_tiles(sizes[order[start:end]], tile_nodes)
        order[start:end] = order[start:end][places]
        tiles.append(tile_ptr)
    return np.concatenate(tiles), np.cumsum([0] + [len(tile_ptr) for tile_ptr in tiles])


def next_fit(ptr: np.ndarray, tile_nodes: int) -> np.ndarray:
    """Return tiles of molecules in their given order, each of as many as fit: `tile_ptr`, int32 [tiles + 1], first molecule of each tile.

    A molecule larger than a tile has its own. `ptr` is the first atom of each molecule, int [B + 1].
    """
    first_atoms = ptr.tolist()  # NumPy takes microseconds for each look-up
    starts, count = [0], len(ptr) - 1
    while starts[-1] < count:
        start = starts[-1]
        end = bisect_right(first_atoms, first_atoms[start] + tile_nodes) - 1
        starts.append(min(max(end, start + 1), count))
    return np.array(starts, np.int32)


def max_tiles(num_graphs: int, num_nodes: int, num_large: int, tile_nodes: int) -> int:
    """Return a number of tiles that always suffices for `num_graphs` molecules of `num_nodes` atoms, of which `num_large` exceed a tile.

    Two consecutive tiles of either planner together hold more than T atoms, so that there are at most 2 N / T + 1 of them.
    """
    return min(num_graphs, 2 * num_nodes // tile_nodes + 1 + num_large)
