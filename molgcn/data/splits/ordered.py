"""A split that cuts molecules in an order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from molgcn.data.splits.parts import Split, as_split, refuse_empty
from molgcn.data.splits.sizes import split_sizes


def ordered_split(
    ranks: np.ndarray, fractions: Sequence[float] = (0.8, 0.1, 0.1), groups: np.ndarray | None = None, newest: bool = False
) -> Split:
    """Cut molecules in order: the first ones train, the next ones validate, the last ones test.

    Args:
        ranks: [M], what molecules are ordered by; equal ones keep their order.
        fractions: see :func:`~molgcn.data.splits.sizes.split_sizes`.
        groups: int [M], equal for molecules that are to stay in one part: all go where the first of them stands. A group that a cut
            divides goes where its middle is.
        newest: of numbers of molecules that leave some unused, leave out the first ones, not the last.

    Returns:
        sorted int64 indices for "train", "val" and "test".

    Raises:
        UserError: see :func:`~molgcn.data.splits.sizes.split_sizes`, or when large groups leave a part empty.
    """
    sizes = split_sizes(len(ranks), fractions)
    order = np.argsort(ranks, kind="stable")
    groups = np.arange(len(ranks)) if groups is None else groups
    _, first, place, counts = np.unique(groups[order], return_index=True, return_inverse=True, return_counts=True)
    in_order = np.argsort(first)
    middles = np.cumsum(counts[in_order]) - counts[in_order] / 2
    unused = len(ranks) - sum(sizes) if newest else 0
    bounds = unused + np.cumsum([0, *sizes])
    part_of = np.empty(len(counts), np.int64)
    part_of[in_order] = np.searchsorted(bounds, middles) - 1
    placed = np.empty(len(ranks), np.int64)
    placed[order] = part_of[place]
    split = as_split(placed)
    refuse_empty(split, sizes, f"{len(ranks)} molecules are only {len(counts)} groups of copies that stay together. Use other fractions")
    return split
