"""Reads a column of times, by which the oldest molecules train and the newest test."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from molgcn.data.splits.parts import IN_WORDS, Split
from molgcn.errors import UserError, counted, shown

log = logging.getLogger(__name__)


def column_times(cells: Sequence[str], column: str, rows: Sequence[object] | np.ndarray) -> np.ndarray:
    """Return the times in the cells of a column, float64 or datetime64 [M].

    Args:
        cells: all numbers, such as years, or all ISO dates with or without a time of day: 2021-03, 2021-03-04, 2021-03-04T12:30Z.
        column: name of the column, for messages.
        rows: the source row of each cell, for messages.

    Raises:
        UserError: when a cell is neither a number nor a date, or not of the kind of the first one, naming its row.
    """
    import pandas as pd

    stripped = pd.Series([cell.strip() for cell in cells])
    numbers = pd.to_numeric(stripped, errors="coerce").to_numpy(np.float64)
    values: np.ndarray = numbers
    kind, wrong = "a number, as the first one is", ~np.isfinite(numbers)
    if wrong[0]:
        times = pd.to_datetime(stripped, format="ISO8601", errors="coerce", utc=True)
        values = times.to_numpy("datetime64[us]")
        kind = "a number or an ISO date such as 2021-03-04" if np.isnat(values[0]) else "an ISO date, as the first one is"
        wrong = np.isnat(values) | ~wrong
    if wrong.any():
        place = int(np.argmax(wrong))
        raise UserError(
            f"Column '{shown(column)}', row {rows[place]} (counted from 0, without the header) says '{shown(cells[place])}'; "
            f"expected {kind}. dataset.split=time needs one for every molecule: correct the cell, or leave the row out of the file."
        )
    return values


def report_times(split: Split, times: np.ndarray, cells: Sequence[str], column: str) -> None:
    """Log the first and the last time in each part of a split, and how many molecules follow an older copy into an earlier part.

    Args:
        split: positions for "train", "val" and "test".
        times: [M], the time of each molecule, see :func:`column_times`.
        cells: the text of the times.
        column: name of the column.
    """
    spans, moved, begin = [], 0, None
    for part, places in reversed([(part, places) for part, places in split.items() if len(places)]):
        first, last = (cells[places[choose(times[places])]].strip() for choose in (np.argmin, np.argmax))
        spans.append(f"{IN_WORDS[part]} {shown(first)}" + (f" to {shown(last)}" if first != last else ""))
        moved += 0 if begin is None else int((times[places] >= begin).sum())
        begin = times[places].min()
    copies = f"; {counted(moved, 'molecule')} with an older copy, by which both are placed" if moved else ""
    log.info("Column '%s': %s%s", shown(column), ", ".join(reversed(spans)), copies)
