"""A split by the files that a set was read from."""

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
    """Return the parts that `dataset.val_path` and `test_path` hold; one without a file is drawn from the training file.

    Args:
        molecules: of all files.
        config: names them.
        draw: splits molecules by three fractions or numbers.

    Raises:
        UserError: when no molecule of a file is in the set; and what `draw` raises.
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
    """Return fractions, or numbers, of the training file: 0 for a part that has a file."""
    left = [0.0 if part in parts[1:] else number for part, number in zip(PARTS, fractions, strict=True)]
    total = sum(left) if are_fractions(fractions) else 0
    return [number / total for number in left] if total else left
