"""A split by the files from which a set was read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from molgcn.data.config import DatasetConfig
from molgcn.data.packed import PackedMolecules
from molgcn.data.splits.parts import PARTS, Split
from molgcn.data.splits.sizes import are_fractions
from molgcn.errors import UserError

Draw = Callable[[PackedMolecules, Sequence[float]], Split]


def split_files(molecules: PackedMolecules, config: DatasetConfig, draw: Draw) -> Split:
    """Split a set by the files `dataset.path`, `val_path` and `test_path`. A part without a file is drawn from `path`.

    Args:
        molecules: the molecules of all files.
        config: configuration of the data set, which names the files.
        draw: function that splits molecules by three fractions or numbers.

    Returns:
        Sorted int64 positions for "train", "val" and "test".

    Raises:
        UserError: when no molecule of a file is in the set, or `draw` raises one.
    """
    parts = list(config.files)
    number = np.searchsorted([start for _, start in molecules.files], molecules.rows, side="right") - 1
    split = dict.fromkeys(PARTS, np.array([], np.int64)) | {part: np.flatnonzero(number == place) for place, part in enumerate(parts)}
    for (name, _), part in zip(molecules.files, parts, strict=True):
        if len(split[part]) == 0:
            raise UserError(f"No molecule of {name}, the file of the part {part}, is in the set. Correct its rows, or use a larger subset.")
    fractions = _of_training(config.split_fractions, parts)
    own = split["train"]
    if any(fractions[1:]):
        drawn = draw(molecules[own], fractions)
        split |= {part: own[drawn[part]] for part in PARTS if part not in parts[1:]}
    return split


def _of_training(fractions: Sequence[float], parts: Sequence[str]) -> list[float]:
    """Return the fractions or numbers by which to split the training file, 0 for a part that has a file of its own."""
    left = [0.0 if part in parts[1:] else number for part, number in zip(PARTS, fractions, strict=True)]
    total = sum(left) if are_fractions(fractions) else 0
    return [number / total for number in left] if total else left
