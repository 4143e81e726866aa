"""The columns of targets and weights in a file of one's own: which ones are learned, and what their cells say."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from molgcn.data.cache import file_hash
from molgcn.data.config import DatasetConfig
from molgcn.data.tables import Columns, is_missing
from molgcn.data.target_config import TargetConfig
from molgcn.errors import UserError, counted, first_of, listed, shown
from molgcn.process.quiet import quiet

log = logging.getLogger(__name__)

_BOUND = re.compile(r"\s*([<>\u2264\u2265])=?\s*(.*)", re.DOTALL)
_CHOSEN: dict[str, list[str]] = {}  # a source is opened several times in a run


def default_targets(path: Path, names: Sequence[str], config: DatasetConfig, read: Callable[[], Columns]) -> list[str]:
    """Return the columns of numbers or labelled classes that no key of `dataset` names, and say once which were taken and which were not.

    `names` are those of the file's columns, whose text `read` returns. A column that only numbers the rows is taken only where there is no
    other.

    Raises:
        UserError: when no column is left.
    """
    others = (*config.smiles_columns, *(config.descriptors or ()), config.weights, config.split_column)
    candidates = [name for name in names if name not in others]
    key = repr((str(path), file_hash(path), candidates, config.labels, config.bounded, config.header))
    if key not in _CHOSEN:
        with quiet("molgcn.data.tables", "molgcn.data.delimited"):  # the columns that are taken are read again
            columns = read()
            taken, left_out, meant = _choose(candidates, columns, config)
        without = f"; not {listed(left_out)}" if left_out else ""
        log.info(
            "%s: dataset.targets names no columns, so that all others of numbers are learned: %s%s", columns.path, listed(taken), without
        )
        for reason in meant:
            log.warning("A column whose cells are mostly numbers is not learned: %s", reason)
        _CHOSEN[key] = taken
    return _CHOSEN[key]


def _choose(candidates: Sequence[str], columns: Columns, given: TargetConfig) -> tuple[list[str], list[str], list[UserError]]:
    """Return the columns that are learned, those that are not, and what is wrong with those of them that are mostly numbers."""
    taken: list[str] = []
    others: dict[str, UserError] = {}
    numbering: list[str] = []
    for name in candidates:
        try:
            values = read_targets(columns, [name], given)[0][:, 0]
        except UserError as error:
            others[name] = error
            continue
        numbers_rows = len(values) > 1 and (np.diff(values) == 1).all()
        (numbering if numbers_rows else taken).append(name)
    left_out = list(others)
    if taken:
        left_out = [*(f"{name} (numbers the rows)" for name in numbering), *left_out]
    else:
        taken = numbering
    meant = [error for name, error in others.items() if columns.mostly_numbers(name)]
    if not taken:
        reasons = meant or (list(others.values()) if len(others) == 1 else [])
        raise UserError(
            f"dataset=csv needs dataset.targets=[<column>,...], since no other column of {columns.path} holds only numbers. It has the "
            f"columns: {listed(candidates) or 'none'}.{''.join(f' {reason}' for reason in reasons[:1])}"
        )
    return taken, left_out, meant


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
        raise UserError(
            f"{columns.place(name, wrong[0])}: '{shown(columns[name][wrong[0]])}' is not a weight. Expected a number of at least 0; 0 "
            f"leaves the molecule out of the loss. {first_of(len(wrong), len(weights), 'cell')}"
        )
    return weights


def _classes(columns: Columns, name: str, classes: Mapping[str, int | None]) -> np.ndarray:
    """Return the class of each row of a column, float64 [M], NaN where missing: an empty cell, or a word that `dataset.labels` says."""
    result = np.full(len(columns[name]), np.nan)
    numbers = {text: np.nan if number is None else number for text, number in classes.items()}
    folded = {text.casefold(): number for text, number in numbers.items()}
    wrong: list[int] = []
    for row, text in enumerate(columns[name]):
        cell = text.strip()
        number = numbers.get(cell, folded.get(cell.casefold()))
        if number is not None:
            result[row] = number
        elif not is_missing(cell, of_numbers=False):
            wrong.append(row)
    if wrong:
        cell = columns[name][wrong[0]].strip()
        missing = f" Where {shown(cell)} is a missing value, say null for it." if is_missing(cell, of_numbers=True) else ""
        raise UserError(
            f"{columns.place(name, wrong[0])}: dataset.labels has no class for '{shown(cell)}', only for {', '.join(map(shown, classes))}. "
            f"{first_of(len(wrong), len(result), 'cell')} Add it, correct it, or leave the cell empty if missing.{missing}"
        )
    if np.isnan(result).all():
        raise UserError(f"{columns.path}: all {counted(len(result), 'value')} of column '{shown(name)}' are missing. Name another target.")
    return result
