"""Cross-validation: folds of which each is held out once as the test part."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from molgcn.data.splits.parts import Split
from molgcn.errors import UserError


def fold_split(groups: np.ndarray, strata: np.ndarray, folds: int, fold: int, validation: float, seed: int) -> Split:
    """Hold one fold out as the test part and cut the validation part from the rest; the same seed gives the same folds everywhere.

    Args:
        groups: int [M], equal for molecules that are to stay together.
        strata: int [M]: each part gets its share of every one of them, as closely as whole groups allow.
        folds: how many there are.
        fold: the one that is held out.
        validation: the share of the rest that validates.
        seed: of the shuffles.

    Returns:
        sorted int64 indices for "train", "val" and "test".

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
    """Deal groups of molecules out to parts, the largest first and equal ones in random order, each to the part that lacks it most.

    Args:
        groups: int [M], equal for molecules that are to stay together.
        strata: int [M], of which each part gets its share.
        shares: of the molecules, one a part, with a sum of 1.
        rng: of the order.

    Returns:
        int64 [M], the number of each molecule's part.
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
        best = np.lexsort((-lacks.sum(axis=1), -need.round(9)))[0]  # of parts that need it alike, the emptiest
        placed[one] = best
        lacks[best] -= content[one]
    return placed[group]
