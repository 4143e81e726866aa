"""A split by a seeded shuffle."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from molgcn.data.splits.groups import fill_empty, place_groups
from molgcn.data.splits.parts import PARTS, Split, refuse_empty
from molgcn.data.splits.sizes import split_sizes


def random_split(
    num_molecules: int, fractions: Sequence[float] = (0.8, 0.1, 0.1), seed: int = 0, groups: np.ndarray | None = None
) -> Split:
    """Shuffles with NumPy's PCG64 generator and cuts; the same seed gives the same split on every machine.

    Args:
        num_molecules: how many there are.
        fractions: see :func:`~molgcn.data.splits.sizes.split_sizes`.
        seed: of the shuffle.
        groups: int [num_molecules], equal for molecules that are to stay in one part; None where each may go anywhere. Sizes then follow
            `fractions` as closely as whole groups allow: groups of more than half a validation or test part are placed first.

    Returns:
        sorted int64 indices for "train", "val" and "test".

    Raises:
        UserError: see :func:`~molgcn.data.splits.sizes.split_sizes`, or when too few groups leave a part empty.
    """
    sizes = split_sizes(num_molecules, fractions)
    order = np.random.default_rng(seed).permutation(num_molecules)
    groups = np.arange(num_molecules) if groups is None else groups
    _, first, place, counts = np.unique(groups[order], return_index=True, return_inverse=True, return_counts=True)
    large = counts > min(sizes[1:]) / 2
    rank = np.empty(len(counts), np.int64)  # of each group: the large ones first, then as the shuffle meets them
    rank[np.lexsort((first, ~large))] = np.arange(len(counts))
    together = order[np.argsort(rank[place], kind="stable")]
    in_order = counts[np.argsort(rank)]
    placed = place_groups(in_order.tolist(), sizes, num_molecules)
    if sum(sizes) == num_molecules:
        fill_empty(placed, in_order.tolist())
    part_of = np.repeat(placed, in_order)
    split = {part: np.sort(together[part_of == number]) for number, part in enumerate(PARTS)}
    refuse_empty(
        split, f"{num_molecules} molecules are only {len(counts)} groups of copies that stay together. Use more, or other fractions"
    )
    return split
