"""How many molecules each part is to have."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from molgcn.errors import UserError


def split_sizes(num_molecules: int, fractions: Sequence[float]) -> tuple[int, int, int]:
    """Numbers of molecules in train, validation and test.

    Args:
        num_molecules: how many there are.
        fractions: three fractions that sum to 1 (rounded; train takes the remainder), or three whole numbers of
            molecules, which may leave some unused. Validation, test or both may be 0: the set has no such part.

    Raises:
        UserError: when they are neither, ask for more than there is, or leave training or a part that is wanted empty; and when whole
            numbers sum to 10 or 100, as tenths and percentages do, but the set has not as many molecules.
    """
    numbers = tuple(fractions)
    if len(numbers) != 3 or any(not np.isfinite(number) or number < 0 for number in numbers):
        raise UserError(
            f"dataset.split_fractions={list(numbers)}: expected three numbers for train, validation and test, "
            "as in [0.8,0.1,0.1] or [10000,1000,1000]."
        )
    total = sum(numbers)
    if total in (10, 100) and total != num_molecules and all(number == int(number) for number in numbers):
        raise UserError(
            f"dataset.split_fractions={list(numbers)} sum to {total:g}, but the set has {num_molecules:,} molecules. For shares of the set "
            f"give fractions: [{','.join(f'{number / total:g}' for number in numbers)}]. For as few molecules draw them with "
            f"dataset.subset={total:g} and give the same numbers."
        )
    if are_fractions(numbers):
        val, test = (round(number * num_molecules) for number in numbers[1:])
        sizes = (num_molecules - val - test, val, test)
    elif all(number == int(number) for number in numbers):
        sizes = (int(numbers[0]), int(numbers[1]), int(numbers[2]))
    else:
        raise UserError(
            f"dataset.split_fractions={list(numbers)} sum to {total:g}. Give three fractions that sum to 1 or three whole numbers of "
            "molecules."
        )
    empty = any(number > 0 and size < 1 for number, size in zip(numbers, sizes, strict=True))
    if sum(sizes) > num_molecules or sizes[0] < 1 or empty:
        raise UserError(
            f"A set of {num_molecules} molecules cannot be split into train, validation and test by "
            f"dataset.split_fractions={list(numbers)} ({sizes[0]}, {sizes[1]} and {sizes[2]} molecules). Every part "
            "needs at least one, but validation or test that you give as 0; use more molecules or other fractions."
        )
    return sizes


def are_fractions(numbers: Sequence[float]) -> bool:
    """Whether `dataset.split_fractions` are fractions: they sum to 1."""
    return abs(sum(numbers) - 1) < 1e-6


def large_size(sizes: Sequence[int]) -> float:
    """Return the number of molecules beyond which a group is large for the parts: half the smaller one of validation and test."""
    return min((size for size in sizes[1:] if size), default=math.inf) / 2
