"""Cross-validation, in which each fold is held out once as the test part."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from molgcn.data.splits.parts import Split
from molgcn.errors import UserError


def fold_split(groups: np.ndarray, strata: np.ndarray, folds: int, fold: int, validation: float, seed: int) -> Split:
    """Hold one fold out as the test part and draw the validation part from the rest. The same seed gives the same folds on every machine.

    Args:
        groups: int [M], equal for molecules that stay in one part.
        strata: int [M], stratum of each molecule. Each part gets its share of every stratum, as closely as whole groups allow.
        folds: number of folds.
        fold: number of the fold that is held out, counted from 0.
        validation: fraction of the rest that is the validation part.
        seed: seed of the shuffles.

    Returns:
        Sorted int64 positions for "train", "val" and "test".

    Raises:
        UserError: when there are fewer groups than folds, or the rest leaves training or validation empty.
    """
    count = len(np.unique(groups))
    if count < folds:
        together = "" if count == len(groups) else f", which are {count:,} groups that stay together"
        raise UserError(
            f"dataset.folds={folds} is more than the set has: {len(groups):,} molecules{together}. Every fold needs at least one; use "
            "fewer folds, or more molecules."
        )
    test = deal(groups, strata, [1 / folds] * folds, np.random.default_rng(seed)) == fold
    rest = np.flatnonzero(~test)
    part = deal(groups[rest], strata[rest], [1 - validation, validation], np.random.default_rng([seed, fold]))
    split = {"train": rest[part == 0], "val": rest[part == 1], "test": np.flatnonzero(test)}
    for name, share in (("train", 1 - validation), ("val", validation)):
        if share > 0 and len(split[name]) == 0:
            raise UserError(
                f"Fold {fold} of dataset.folds={folds} leaves '{name}' empty: {len(rest):,} molecules, in {len(np.unique(groups[rest])):,} "
                "groups that stay together, are left for training and validation. Use more molecules, or another ratio of the first two "
                "dataset.split_fractions."
            )
    return split


def deal(groups: np.ndarray, strata: np.ndarray, shares: Sequence[float], rng: np.random.Generator) -> np.ndarray:
    """Distribute groups of molecules to parts, the largest groups first, each to the part that lacks most of its strata.

    Args:
        groups: int [M], equal for molecules that stay in one part.
        strata: int [M], stratum of each molecule. Each part gets its share of every stratum.
        shares: fraction of the molecules for each part, with a sum of 1.
        rng: generator that orders groups of equal size.

    Returns:
        The number of each molecule's part, int64 [M].
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
