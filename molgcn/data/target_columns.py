"""Reads targets, bounds and weights from the text of columns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from molgcn.data.label_columns import with_labels
from molgcn.data.packed import PackedMolecules
from molgcn.data.tables import Columns, is_missing
from molgcn.data.target_config import TargetConfig
from molgcn.errors import UserError, shown

_BOUND = re.compile(r"\s*([<>\u2264\u2265])=?\s*(.*)", re.DOTALL)


def read_targets(columns: Columns, names: Sequence[str], given: TargetConfig) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the values of target columns, and which of them are bounds.

    Returns:
        - values: float64 [M, T], NaN where missing.
        - bounds: float32 [M, T], -1 where the true value is below its target, 1 where it is above, else 0. None without `given.bounded`
          or where no cell is a bound.

    Raises:
        UserError: when a cell is neither a number nor a class, naming its column and row, or when every cell of a column is missing.
    """
    labels, values = given.given("labels"), []
    bounds = np.zeros((len(columns[names[0]]), len(names)), np.float32)
    for place, name in enumerate(names):
        if name in labels:
            values.append(_classes(columns, name, labels[name]))
        elif given.bounded:
            cells = [_BOUND.fullmatch(text) for text in columns[name]]
            bounds[:, place] = [0 if cell is None else -1 if cell[1] in "<\u2264" else 1 for cell in cells]
            texts = [text if cell is None else cell[2] for text, cell in zip(columns[name], cells, strict=True)]
            values.append(columns.numbers(name, texts))
        else:
            values.append(columns.numbers(name))
    found = np.stack(values, axis=1)
    bounds[np.isnan(found)] = 0
    return found, bounds if bounds.any() else None


def read_weights(columns: Columns, name: str) -> np.ndarray:
    """Return the weight of each row, float64 [M]."""
    weights = columns.numbers(name)
    wrong = np.flatnonzero(~(weights >= 0))
    if len(wrong):
        place = f"{columns.path}, column '{shown(name)}', row {wrong[0]} (counted from 0, without the header)"
        raise UserError(
            f"{place}: '{shown(columns[name][wrong[0]])}' is not a weight. Expected a number of at least 0; 0 leaves the molecule out of "
            "the loss."
        )
    return weights


def weighed(molecules: PackedMolecules, train: np.ndarray) -> PackedMolecules:
    """Return the set with its weights divided by their mean over the training part. A set without weights is returned as it is."""
    if molecules.weights is None:
        return molecules
    mean = molecules.weights[train].mean(dtype=np.float64)
    if mean == 0:
        raise UserError(
            f"All {len(train):,} molecules of the training part have the weight 0 in the column of dataset.weights (the first is row "
            f"{molecules.rows[train[0]]}), so that nothing is learned. Give some of them more, or leave dataset.weights out."
        )
    return with_labels(molecules, molecules.bounds, molecules.weights / mean)


def _classes(columns: Columns, name: str, classes: Mapping[str, int | None]) -> np.ndarray:
    """Return the class of each row of a column, float64 [M], NaN where missing: an empty cell, or a word that `dataset.labels` says."""
    result = np.full(len(columns[name]), np.nan)
    numbers = {text: np.nan if number is None else number for text, number in classes.items()}
    folded = {text.casefold(): number for text, number in numbers.items()}
    for row, text in enumerate(columns[name]):
        cell = text.strip()
        number = numbers.get(cell, folded.get(cell.casefold()))
        if number is not None:
            result[row] = number
        elif not is_missing(cell, of_numbers=False):
            missing = f" Where {shown(cell)} is a missing value, say null for it." if is_missing(cell, of_numbers=True) else ""
            raise UserError(
                f"{columns.path}, column '{shown(name)}', row {row} (counted from 0, without the header): dataset.labels has no class for "
                f"'{shown(cell)}', only for {', '.join(map(shown, classes))}. Add it, correct it, or leave the cell empty if missing."
                f"{missing}"
            )
    if np.isnan(result).all():
        raise UserError(f"{columns.path}: all {len(result)} values of column '{shown(name)}' are missing. Name another target.")
    return result
