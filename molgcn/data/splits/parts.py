"""The parts of a set, and checks that every split must pass."""

from __future__ import annotations

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


def as_split(placed: np.ndarray) -> Split:
    """Return sorted int64 positions for "train", "val" and "test".

    Args:
        placed: int [M], number of the part of each molecule: 0, 1 or 2. Any other number leaves the molecule out.
    """
    return {part: np.flatnonzero(placed == number) for number, part in enumerate(PARTS)}


def check_split(split: Mapping[str, np.ndarray], rows: np.ndarray, source: str) -> None:
    """Check a split that was read. Validation and test may be empty.

    Args:
        split: the positions of each part's molecules in the set.
        rows: int [M], source row of each molecule of the set, for messages.
        source: the name of the file or column, for messages.

    Raises:
        UserError: when training is empty, or a molecule is named twice.
    """
    if len(split["train"]) == 0:
        raise UserError(f"The split from {source} has no molecule in train. Training needs at least one.")
    together = np.concatenate([split[part] for part in parts_of(split)])
    values, counts = np.unique(together, return_counts=True)
    if counts.max() > 1:
        twice = int(values[counts > 1][0])
        where = [part for part in parts_of(split) if twice in split[part]]
        raise UserError(
            f"The split from {source} names {counted(int((counts > 1).sum()), 'row')} more than once, the first is row {rows[twice]} "
            f"({' and '.join(where)}). Name each row once."
        )


def refuse_empty(split: Split, sizes: Sequence[int], why: str) -> None:
    """Check that no part of a drawn split is empty that should have molecules.

    Args:
        split: the parts.
        sizes: number of molecules that each part should have, 0 for a part that is not wanted.
        why: the reason and advice for the message.

    Raises:
        UserError: when a part that is wanted is empty.
    """
    empty = [part for part, size in zip(PARTS, sizes, strict=True) if size and len(split[part]) == 0]
    if empty:
        raise UserError(f"The split leaves {' and '.join(empty)} empty: {why}.")
