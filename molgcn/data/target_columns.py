"""Targets from the text of their columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from molgcn.data.tables import MISSING, Columns
from molgcn.data.target_config import TargetConfig
from molgcn.errors import UserError, shown


def read_targets(columns: Columns, names: Sequence[str], given: TargetConfig) -> np.ndarray:
    """Return the values float64 [M, T] of the columns that hold targets, NaN where missing.

    Args:
        columns: of the file.
        names: those of the targets.
        given: what the configuration says of them.

    Raises:
        UserError: naming column and row, see :func:`molgcn.data.tables.numbers`; or for a text that stands for no class.
    """
    labels = given.given("labels")
    return np.stack([_classes(columns, name, labels[name]) if name in labels else columns.numbers(name) for name in names], axis=1)


def _classes(columns: Columns, name: str, classes: Mapping[str, int]) -> np.ndarray:
    result = np.full(len(columns[name]), np.nan)
    for row, text in enumerate(columns[name]):
        cell = text.strip()
        if cell in classes:
            result[row] = classes[cell]
        elif cell.lower() not in MISSING:
            raise UserError(
                f"{columns.path}, column '{shown(name)}', row {row} (counted from 0, without the header): dataset.labels has no class for "
                f"'{shown(cell)}', only for {', '.join(map(shown, classes))}. Add it, correct it, or leave the cell empty if missing."
            )
    if np.isnan(result).all():
        raise UserError(f"{columns.path}: all {len(result)} values of column '{shown(name)}' are missing. Name another target.")
    return result
