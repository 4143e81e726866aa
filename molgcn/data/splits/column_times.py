"""Reads a column of times, by which the oldest molecules train and the newest test."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from molgcn.errors import UserError, shown


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
