"""The parts of a set, and their sizes from `dataset.split_fractions`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from molgcn.errors import UserError, counted

PARTS = ("train", "val", "test")
CALIBRATION = "calibration"  # a fourth part that a split may have
IN_WORDS = {"train": "training", "val": "validation", "test": "test", CALIBRATION: "calibration"}
Split = dict[str, np.ndarray]


def parts_of(split: Mapping[str, object]) -> tuple[str, ...]:
    """Return the names of the parts of a split, with "calibration" only if the split has it."""
    return (*PARTS, CALIBRATION) if CALIBRATION in split else PARTS


def as_split(placed: np.ndarray, sizes: Sequence[int], why: str) -> Split:
    """Return sorted int64 positions for "train", "val" and "test".

    The number of a molecule's part is 0, 1 or 2; any other leaves it out. A part is wanted if its size is not 0; where one is empty, the
    message of the error says `why`.
    """
    split = {part: np.flatnonzero(placed == number) for number, part in enumerate(PARTS)}
    empty = [part for part, size in zip(PARTS, sizes, strict=True) if size and len(split[part]) == 0]
    if empty:
        raise UserError(f"The split leaves {' and '.join(empty)} empty: {why}.")
    return split


def check_fractions(fractions: Sequence[float]) -> tuple[float, ...]:
    """Return `dataset.split_fractions` as a tuple, or raise UserError unless they are three fractions or three whole numbers."""
    numbers = tuple(float(number) for number in fractions)
    if len(numbers) != 3 or any(not np.isfinite(number) or number < 0 for number in numbers):
        raise UserError(
            f"dataset.split_fractions={list(numbers)}: expected three numbers for train, validation and test, "
            "as in [0.8,0.1,0.1] or [10000,1000,1000]."
        )
    if not are_fractions(numbers) and any(number != int(number) for number in numbers):
        raise UserError(
            f"dataset.split_fractions={list(numbers)} sum to {sum(numbers):g}. Give three fractions that sum to 1 or three whole numbers "
            "of molecules."
        )
    return numbers


def split_sizes(num_molecules: int, fractions: Sequence[float]) -> tuple[int, int, int]:
    """Return the numbers of molecules in training, validation and test.

    Args:
        num_molecules: number of molecules.
        fractions: three fractions that sum to 1, or three whole numbers of molecules, which may leave some unused. Fractions are rounded,
            and training takes the remainder. Validation and test may be 0, for a set without this part.

    Raises:
        UserError: when the numbers are neither, ask for more molecules than there are, or leave training or a part that is wanted empty.
            Also when whole numbers sum to 10 or 100, as tenths and percentages do, and the set has another number of molecules.
    """
    numbers = check_fractions(fractions)
    total = sum(numbers)
    if total in (10, 100) and total != num_molecules and all(number == int(number) for number in numbers):
        raise UserError(
            f"dataset.split_fractions={list(numbers)} sum to {total:g}, but the set has {counted(num_molecules, 'molecule')}. For shares "
            f"of the set give fractions: [{','.join(f'{number / total:g}' for number in numbers)}]. For as few molecules draw them with "
            f"dataset.subset={total:g} and give the same numbers."
        )
    if are_fractions(numbers):
        val, test = (round(number * num_molecules) for number in numbers[1:])
        sizes = (num_molecules - val - test, val, test)
    else:
        sizes = (int(numbers[0]), int(numbers[1]), int(numbers[2]))
    empty = any(number > 0 and size < 1 for number, size in zip(numbers, sizes, strict=True))
    if sum(sizes) > num_molecules or sizes[0] < 1 or empty:
        raise UserError(
            f"A set of {counted(num_molecules, 'molecule')} cannot be split into train, validation and test by "
            f"dataset.split_fractions={list(numbers)} ({sizes[0]}, {sizes[1]} and {sizes[2]} molecules). Every part "
            "needs at least one molecule. Use more molecules or other fractions, or leave validation or test out by a 0, as in [0.9,0.1,0]."
        )
    return sizes


def are_fractions(numbers: Sequence[float]) -> bool:
    """Return whether `dataset.split_fractions` are fractions, which sum to 1."""
    return abs(sum(numbers) - 1) < 1e-6


def large_size(sizes: Sequence[int]) -> float:
    """Return the number of molecules above which a group is large: half of the smaller one of validation and test."""
    return min((size for size in sizes[1:] if size), default=math.inf) / 2
