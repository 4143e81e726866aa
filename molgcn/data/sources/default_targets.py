"""Chooses the targets of a table of one's own where `dataset.targets` names none: all other columns of numbers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from molgcn.data.config import DatasetConfig
from molgcn.data.tables import Columns
from molgcn.errors import UserError, listed

log = logging.getLogger(__name__)

_CHOSEN: dict[str, list[str]] = {}  # a source is opened several times in a run


def default_targets(
    path: Path,
    content: str,
    names: Sequence[str],
    config: DatasetConfig,
    read: Callable[[], Columns],
    numbers: Callable[[Columns, str], np.ndarray],
) -> list[str]:
    """Return the columns of numbers or labelled classes that no key of `dataset` names, and say once which were taken and which were not.

    A column that only numbers the rows is taken where there is no other.

    Args:
        path: the file.
        content: hash of its content.
        names: names of its columns without the SMILES.
        config: names the columns that are descriptors, weights and the like.
        read: reads the text of these columns.
        numbers: returns the numbers in one of them, or raises UserError.

    Raises:
        UserError: when no column is left.
    """
    others = (*config.smiles_columns, *(config.descriptors or ()), config.weights, config.split_column)
    candidates = [name for name in names if name not in others]
    key = repr((str(path), content, candidates, config.labels, config.bounded, config.header))
    if key not in _CHOSEN:
        _CHOSEN[key] = _choose(path, candidates, read(), numbers)
    return _CHOSEN[key]


def _choose(path: Path, candidates: Sequence[str], columns: Columns, numbers: Callable[[Columns, str], np.ndarray]) -> list[str]:
    taken: list[str] = []
    left_out: list[str] = []
    numbering: list[str] = []
    for name in candidates:
        try:
            values = numbers(columns, name)
        except UserError:
            left_out.append(name)
            continue
        numbers_rows = len(values) > 1 and (np.diff(values) == 1).all()
        (numbering if numbers_rows else taken).append(name)
    if taken:
        left_out = [*(f"{name} (numbers the rows)" for name in numbering), *left_out]
    else:
        taken = numbering
    if not taken:
        raise UserError(
            f"dataset=csv needs dataset.targets=[<column>,...], since no other column of {path} holds only numbers. It has the columns: "
            f"{listed(candidates) or 'none'}."
        )
    without = f"; not {listed(left_out)}" if left_out else ""
    log.info("%s: dataset.targets names no columns, so that all others of numbers are learned: %s%s", path, listed(taken), without)
    return taken
