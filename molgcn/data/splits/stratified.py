"""A split whose parts have the same share of each class, or of low and high values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from molgcn.data.splits.parts import Split, as_split, refuse_empty
from molgcn.data.splits.sizes import split_sizes

BINS = 10
_MOST_CLASSES = 100


def strata_of(values: np.ndarray) -> np.ndarray:
    """Return the number of each molecule's stratum, int64 [M].

    Args:
        values: [M], of one target, NaN where missing. Whole numbers of at most 100 kinds are classes, each a stratum; other values are
            cut into ten bins of as many molecules. Molecules without a value are a stratum of their own.
    """
    known = ~np.isnan(values)
    kinds = np.unique(values[known])
    strata = np.full(len(values), -1)
    if len(kinds) <= _MOST_CLASSES and np.array_equal(kinds, np.round(kinds)):
        strata[known] = np.searchsorted(kinds, values[known])
    else:
        edges = np.quantile(values[known], np.arange(1, BINS) / BINS)
        strata[known] = np.searchsorted(edges, values[known], side="right")
    return strata


def stratified_split(
    strata: np.ndarray, fractions: Sequence[float] = (0.8, 0.1, 0.1), seed: int = 0, groups: np.ndarray | None = None
) -> Split:
    """Shuffle each stratum and deal it out, so that every part has its share of every stratum.

    Args:
        strata: int [M], equal for molecules that are to be shared out alike; see :func:`strata_of`.
        fractions: see :func:`~molgcn.data.splits.sizes.split_sizes`.
        seed: of the shuffle.
        groups: int [M], equal for molecules that are to stay in one part; a group is of its first molecule's stratum.

    Returns:
        sorted int64 indices for "train", "val" and "test".

    Raises:
        UserError: see :func:`~molgcn.data.splits.sizes.split_sizes`, or when too few groups leave a part empty.
    """
    sizes = split_sizes(len(strata), fractions)
    groups = np.arange(len(strata)) if groups is None else groups
    _, first, place, counts = np.unique(groups, return_index=True, return_inverse=True, return_counts=True)
    order = np.random.default_rng(seed).permutation(len(counts))
    order = order[np.argsort(strata[first[order]], kind="stable")]
    part_of = np.empty(len(counts), np.int64)
    part_of[order] = _dealt(counts[order].tolist(), [*sizes, len(strata) - sum(sizes)])
    split = as_split(part_of[place])
    refuse_empty(split, sizes, f"{len(strata)} molecules are only {len(counts)} groups of copies that stay together. Use other fractions")
    return split


def _dealt(counts: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """Return the number of the hand that each group is dealt to, in turn: the one that lacks most of its share of those so far.

    Hands of single molecules end with just their sizes: the one that lacks most lacks some, so that none gets one too many.
    """
    total, seen, dealt, hands = sum(sizes), 0, list[int](), [0] * len(sizes)
    for count in counts:
        seen += count
        hand = max(range(len(sizes)), key=lambda hand: sizes[hand] * seen - hands[hand] * total)
        hands[hand] += count
        dealt.append(hand)
    return dealt
