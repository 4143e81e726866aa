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
        values: float [M], values of one target, NaN where missing. Up to 100 distinct whole numbers are classes, each of them a stratum.
            Any other values are cut into ten bins of equal numbers of molecules. Molecules without a value are a stratum of their own.
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
    """Shuffle each stratum and distribute it, so that every part has its share of every stratum.

    Args:
        strata: int [M], stratum of each molecule, see :func:`strata_of`.
        fractions: fractions or sizes of the parts, see :func:`~molgcn.data.splits.sizes.split_sizes`.
        seed: seed of the shuffle.
        groups: int [M], equal for molecules that stay in one part. A group belongs to the stratum of its first molecule. None does not keep
            molecules together.

    Returns:
        Sorted int64 positions for "train", "val" and "test".

    Raises:
        UserError: when the fractions are not valid (:func:`~molgcn.data.splits.sizes.split_sizes`), or too few groups leave a part empty.
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
    """Return the part of each group, in turn: the part that lacks most of its share of the groups so far.

    With groups of one molecule all parts reach exactly their sizes, since the part that lacks most always lacks at least something.
    """
    total, seen, dealt, hands = sum(sizes), 0, list[int](), [0] * len(sizes)
    for count in counts:
        seen += count
        hand = max(range(len(sizes)), key=lambda hand: sizes[hand] * seen - hands[hand] * total)
        hands[hand] += count
        dealt.append(hand)
    return dealt
