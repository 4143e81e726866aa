"""Splits that are read: from a file, such as the one in which a run saves its split, or from a column."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from molgcn.data.packed import PackedMolecules
from molgcn.data.splits.parts import CALIBRATION, PARTS, Split, parts_of
from molgcn.errors import UserError, counted, shown
from molgcn.files.whole_file import whole

log = logging.getLogger(__name__)

_FORMAT = (
    'Expected {"train": [rows], "val": [rows], "test": [rows]}, or a list of such, with rows of the data file counted from 0, also as '
    '"0-99,120"; val or test may be left out.'
)
_SPELLINGS = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}


def save_split(path: str | Path, split: Mapping[str, np.ndarray], rows: np.ndarray) -> None:
    """Write a split as JSON of source row numbers, which `split=file dataset.split_file=<path>` reads."""
    path = Path(path)
    text = json.dumps({part: rows[split[part]].tolist() for part in parts_of(split)})
    with whole(path) as temporary, open(temporary, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def load_split(path: str | Path) -> Split:
    """Read the only split of a file; see :func:`load_splits`."""
    found = load_splits([path])
    if len(found) > 1:
        raise UserError(f"dataset.split_file={path} has {len(found)} splits. Give a file with one of them.")
    return found[0][1]


def load_splits(paths: Sequence[str | Path]) -> list[tuple[str, Split]]:
    """Read JSON files of one split, as :func:`save_split` writes it, or of a list of splits, as Chemprop does.

    Returns:
        For each split the file and its number there, for messages, and row numbers of the source, int64, for train, val, test and, if the
        file names it, calibration. Validation and test are empty if the file does not name them.
    """
    found = []
    for path in paths:
        content = _read(path)
        several = isinstance(content, list) and len(content) > 1
        for number, one in enumerate(content if isinstance(content, list) and content else [content]):
            where = f"{path}, split {number}" if several else str(path)
            found.append((where, _as_split(one, f"dataset.split_file={where}")))
    return found


def _read(path: str | Path) -> object:
    try:
        return json.loads(Path(path).expanduser().read_text("utf-8"))
    except OSError as error:
        raise UserError(f"dataset.split_file={path} cannot be read: {error.strerror}. Give a JSON file.") from error
    except ValueError as error:
        raise UserError(f"dataset.split_file={path} is not JSON: {error}. {_FORMAT}") from error


def _as_split(content: object, where: str) -> Split:
    if not isinstance(content, dict) or "train" not in content or content.keys() - {*PARTS, CALIBRATION}:
        raise UserError(f"{where} does not name train, val, test and perhaps calibration alone. {_FORMAT}")
    split = {}
    for part in parts_of(content):
        try:
            rows = _rows(content.get(part, []))
        except (TypeError, ValueError, MemoryError) as error:
            raise UserError(f"{where}: '{part}' is not a list of whole numbers. {_FORMAT}") from error
        if rows.ndim != 1 or (len(rows) and rows.dtype.kind not in "iu"):
            raise UserError(f"{where}: '{part}' is not a list of whole numbers. {_FORMAT}")
        split[part] = rows.astype(np.int64)
    return split


def _rows(given: object) -> np.ndarray:
    """Return the rows of a list, or of a text of numbers and ranges that include their ends, such as "0-99,120"."""
    if not isinstance(given, str):
        return np.array(given)
    ranges = [(int(first), int(last or first)) for first, _, last in (one.partition("-") for one in given.split(",") if one.strip())]
    return np.concatenate([np.empty(0, np.int64), *(np.arange(first, last + 1) for first, last in ranges)])


def rows_to_split(wanted: Mapping[str, np.ndarray], molecules: PackedMolecules, split: str, title: str) -> Split:
    """Return the positions in a packed set of the source rows that a split names.

    Rows that the set does not have are left out, and a warning says how many of them were skipped as unreadable.
    """
    found, absent = {}, []
    order = np.argsort(molecules.rows, kind="stable")
    num_rows = int(molecules.rows.max()) + 1 if molecules.num_rows is None else molecules.num_rows
    for part in parts_of(wanted):
        asked = np.asarray(wanted[part], np.int64)
        beyond = asked[(asked < 0) | (asked >= num_rows)]
        if len(beyond):
            raise UserError(
                f"The split from {split} names {counted(len(beyond), 'row')} beyond {title}, such as row {beyond[0]} in {part}: "
                f"it has {counted(num_rows, 'row')}, counted from 0 without a header. Give the split of this file, or correct the rows."
            )
        at = np.searchsorted(molecules.rows, asked, sorter=order).clip(max=len(molecules) - 1)
        there = molecules.rows[order[at]] == asked
        found[part] = order[at][there]
        absent.append(asked[~there])
    _warn_of_absent(np.concatenate(absent), molecules, split)
    check_split(found, molecules.rows, split)
    return found


def _warn_of_absent(absent: np.ndarray, molecules: PackedMolecules, split: str) -> None:
    if not len(absent):
        return
    skipped = int(np.isin(absent, [row.row for row in molecules.skipped]).sum())
    reasons = [
        f"{skipped:,} were left out as unreadable or unusable" if skipped else "",
        f"{len(absent) - skipped:,} are outside dataset.subset or were merged into an equal molecule" if skipped < len(absent) else "",
    ]
    log.warning(
        "The split from %s names %s that are not in the set: %s",
        *(split, counted(len(absent), "row"), ", ".join(filter(None, reasons))),
    )


def column_split(values: Sequence[object], column: str = "split", rows: Sequence[int] | np.ndarray | None = None) -> Split:
    """Split by a column that says train, val (valid, validation) or test.

    An empty cell leaves the molecule out. The cells are those of all rows of the source, and `rows` those of the molecules, by default all.
    """
    names = []
    for row in range(len(values)) if rows is None else rows:
        value = values[row]
        text = "" if value is None or value != value else str(value).strip().lower()
        if text and text not in _SPELLINGS:
            raise UserError(
                f"Column '{column}', row {row} (counted from 0, without the header) says '{shown(str(value))}'; expected train, val "
                "(or valid, validation), test or an empty cell. Correct it, or name another column with dataset.split_column=."
            )
        names.append(_SPELLINGS.get(text, ""))
    split = {part: np.flatnonzero(np.array(names) == part) for part in PARTS}
    check_split(split, np.arange(len(names)), f"column '{column}'")
    return split


def check_split(split: Mapping[str, np.ndarray], rows: np.ndarray, source: str) -> None:
    """Check that a split that was read has training molecules, and names no molecule twice. Validation and test may be empty."""
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
