"""A split that cuts an ordered list of molecules."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from molgcn.data.splits.parts import Split, as_split, refuse_empty
from molgcn.data.splits.sizes import split_sizes
from molgcn.errors import counted


def ordered_split(
    ranks: np.ndarray,
    fractions: Sequence[float] = (0.8, 0.1, 0.1),
    groups: np.ndarray | None = None,
    newest: bool = False,
    kind: str = "copies",
) -> Split:
    """Cut molecules in order: the first ones train, the next ones validate, the last ones test.

    Molecules of equal rank stay in one part. Each cut is at the change of rank that is nearest to it, and no part stays empty while there
    are ranks for it. Sizes that leave some molecules unused are never exceeded.

    Args:
        ranks: [M], values by which molecules are ordered.
        fractions: fractions or sizes of the parts, see :func:`~molgcn.data.splits.sizes.split_sizes`.
        groups: int [M], equal for molecules that stay in one part. They all have the lowest rank among them. None does not keep molecules
            of different ranks together.
        newest: whether the first molecules, and not the last ones, are left out when sizes leave some unused.
        kind: what molecules of equal rank have in common, for messages.

    Returns:
        Sorted int64 positions for "train", "val" and "test".

    Raises:
        UserError: when the fractions are not valid (:func:`~molgcn.data.splits.sizes.split_sizes`), or a part stays empty.
    """
    sizes = split_sizes(len(ranks), fractions)
    _, rank = np.unique(ranks, return_inverse=True)
    if groups is not None:
        _, group = np.unique(groups, return_inverse=True)
        lowest = np.full(len(ranks), len(ranks))
        np.minimum.at(lowest, group, rank)
        rank = lowest[group]
    _, block, counts = np.unique(rank, return_inverse=True, return_counts=True)
    split = as_split(_place_blocks(counts, sizes, newest)[block])
    why = (
        f"{len(ranks):,} molecules are {counted(len(counts), 'group')} of equal {kind} that stay together, the largest of {counts.max():,}"
        ". Use other dataset.split_fractions, perhaps 0 for validation or test"
    )
    refuse_empty(split, sizes, why)
    return split


def _place_blocks(counts: np.ndarray, sizes: Sequence[int], newest: bool) -> np.ndarray:
    """Return the number of the part of each block, int64, -1 for a block that is left out.

    Args:
        counts: int [B], number of molecules of each block, in order.
        sizes: number of molecules of each part, 0 for a part that is not wanted.
        newest: whether the first blocks are left out and not the last ones.
    """
    wanted = [part for part, size in enumerate(sizes) if size]
    ends = np.cumsum(counts)
    placed = np.full(len(counts), -1)
    if sum(sizes) < ends[-1]:
        backwards = slice(None, None, -1 if newest else 1)
        counts, first = counts[backwards], 0
        for part in wanted[backwards]:
            last = first + int(np.searchsorted(np.cumsum(counts[first:]), sizes[part], side="right"))
            placed[backwards][first:last] = part
            first = last
        return placed
    first = 0
    for number, part in enumerate(wanted, start=1):
        most = len(counts) - (len(wanted) - number)  # each part behind needs a block
        distance = np.abs(ends[first:most] - sum(sizes[: part + 1]))
        last = most - int(np.argmin(distance[::-1])) if len(distance) else first
        placed[first:last] = part
        first = last
    return placed
