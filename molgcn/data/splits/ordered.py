"""A split that cuts an ordered list of molecules."""

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
        ranks: [M], values by which molecules are ordered. Molecules of equal values keep their order.
        fractions: fractions or sizes of the parts, see :func:`~molgcn.data.splits.sizes.split_sizes`.
        groups: int [M], equal for molecules that stay in one part. A group has the rank of its first molecule. A group at a cut goes to the
            part that holds its middle. None does not keep molecules together.
        newest: whether the first molecules, and not the last ones, are left out when sizes leave some unused.

    Returns:
        Sorted int64 positions for "train", "val" and "test".

    Raises:
        UserError: when the fractions are not valid (:func:`~molgcn.data.splits.sizes.split_sizes`), or large groups leave a part empty.
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
