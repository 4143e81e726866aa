"""Molecules with equal leaves, and a slow search for the atoms that share a row."""

from collections.abc import Sequence

import numpy as np

from molgcn.data import PackedMolecules


def random_trees(sizes: Sequence[int], num_features: int, seed: int = 0, kinds: int = 2, ring_bonds: float = 0.0) -> PackedMolecules:
    """Return random trees with many leaves and few kinds of atoms.

    `ring_bonds` bonds per atom are added, with duplicates and self-loops.
    """
    rng = np.random.default_rng(seed)
    edges = []
    for size in sizes:
        child = np.arange(1, size)
        tree = np.stack([child, rng.integers(0, np.maximum(child // 3, 1))])
        more = rng.integers(0, size, (2, round(ring_bonds * size)))
        pairs = np.concatenate([tree, more], axis=1)
        edges.append(np.concatenate([pairs, pairs[::-1][:, pairs[0] != pairs[1]]], axis=1))
    table = rng.normal(size=(kinds, num_features)).astype(np.float32)
    codes = rng.integers(0, kinds, sum(sizes))
    counts = np.array([edge.shape[1] for edge in edges])
    return PackedMolecules.from_arrays(np.array(sizes), counts, np.concatenate(edges, axis=1), codes=codes, table=table)


def rows_of_atoms(molecules: PackedMolecules) -> np.ndarray:
    """Return the row of each atom when equal leaves are merged, int64 [N], by a search one by one."""
    rows, num_rows = [], 0
    bonds = iter(molecules.neighbors.tolist())
    for first, end in zip(molecules.node_ptr[:-1].tolist(), molecules.node_ptr[1:].tolist(), strict=True):
        seen: dict[tuple[int, int], int] = {}
        for atom in range(first, end):
            neighbours = [next(bonds) for _ in range(molecules.degree[atom])]
            alike = (neighbours[0], int(molecules.x[atom])) if len(neighbours) == 1 and neighbours[0] != atom - first else None
            if alike in seen:
                rows.append(seen[alike])
                continue
            if alike is not None:
                seen[alike] = num_rows
            rows.append(num_rows)
            num_rows += 1
    return np.array(rows, np.int64)
