"""Splits, also of cross-validation, whose parts have the same share of each class, or of low and high values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from molgcn.data.splits.parts import Split, as_split, split_sizes
from molgcn.errors import UserError, counted

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

    Molecules of equal `groups` [M] stay in one part. A group belongs to the stratum of its first molecule.
    """
    sizes = split_sizes(len(strata), fractions)
    groups = np.arange(len(strata)) if groups is None else groups
    _, first, place, counts = np.unique(groups, return_index=True, return_inverse=True, return_counts=True)
    order = np.random.default_rng(seed).permutation(len(counts))
    order = order[np.argsort(strata[first[order]], kind="stable")]
    part_of = np.empty(len(counts), np.int64)
    part_of[order] = _dealt(counts[order].tolist(), [*sizes, len(strata) - sum(sizes)])
    why = f"{counted(len(strata), 'molecule')} are only {counted(len(counts), 'group')} of copies that stay together. Use other fractions"
    return as_split(part_of[place], sizes, why)


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


def fold_split(groups: np.ndarray, strata: np.ndarray, folds: int, fold: int, validation: float, seed: int) -> Split:
    """Hold one fold out as the test part and draw a fraction of the rest as the validation part.

    Molecules of equal `groups` [M] stay in one part, and each part gets its share of every stratum, as closely as whole groups allow. The
    same seed gives the same folds on every machine.
    """
    count = len(np.unique(groups))
    if count < folds:
        together = "" if count == len(groups) else f", which are {counted(count, 'group')} that stay together"
        raise UserError(
            f"dataset.folds={folds} is more than the set has: {counted(len(groups), 'molecule')}{together}. Every fold needs at least one; "
            "use fewer folds, or more molecules."
        )
    test = deal(groups, strata, [1 / folds] * folds, np.random.default_rng(seed)) == fold
    rest = np.flatnonzero(~test)
    part = deal(groups[rest], strata[rest], [1 - validation, validation], np.random.default_rng([seed, fold]))
    split = {"train": rest[part == 0], "val": rest[part == 1], "test": np.flatnonzero(test)}
    for name, share in (("train", 1 - validation), ("val", validation)):
        if share > 0 and len(split[name]) == 0:
            raise UserError(
                f"Fold {fold} of dataset.folds={folds} leaves '{name}' empty: {counted(len(rest), 'molecule')}, in "
                f"{len(np.unique(groups[rest])):,} groups that stay together, are left for training and validation. Use more molecules, or "
                "another ratio of the first two dataset.split_fractions."
            )
    return split


def deal(groups: np.ndarray, strata: np.ndarray, shares: Sequence[float], rng: np.random.Generator) -> np.ndarray:
    """Distribute groups of molecules to parts, the largest groups first, each to the part that lacks most of its strata.

    The shares sum to 1. The result is the number of each molecule's part, int64 [M].
    """
    _, group, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    kinds, stratum = np.unique(strata, return_inverse=True)
    content = np.zeros((len(sizes), len(kinds)))
    np.add.at(content, (group, stratum), 1)
    totals = content.sum(axis=0)
    lacks = np.outer(shares, totals)
    order = rng.permutation(len(sizes))
    placed = np.empty(len(sizes), np.int64)
    for one in order[np.argsort(-sizes[order], kind="stable")].tolist():
        need = lacks @ (content[one] / totals)
        best = np.lexsort((-lacks.sum(axis=1), -need.round(9)))[0]  # among parts with equal need, the emptiest one
        placed[one] = best
        lacks[best] -= content[one]
    return placed[group]
