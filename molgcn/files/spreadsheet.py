"""The CSV tables that molgcn writes, in which no spreadsheet takes a cell for a formula."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from molgcn.files.whole_file import whole

# In some languages Excel takes the full-width signs for =, +, - and @ too
_FORMULA = re.compile(r"[\s\x00-\x1f\x7f\u200b\ufeff]*[=+\-@\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"\s*([=@]|[+-](\d*[.,]?\d*([eE][+-]?\d+)?|inf|nan))\s*", re.ASCII)


def write_csv(path: Path, rows: Iterable[Iterable[Any]]) -> None:
    """Write a whole CSV file by a :class:`Writer`."""
    with whole(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        Writer(file).writerows(rows)


class Writer:
    """A writer of CSV rows that puts an apostrophe before text which a spreadsheet would run as a formula.

    Args:
        file: a text file opened with newline="".
        delimiter: the character between cells.
    """

    def __init__(self, file: Any, delimiter: str = ",") -> None:
        self._writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")

    def writerow(self, row: Iterable[Any]) -> None:
        self._writer.writerow(_safe(row))

    def writerows(self, rows: Iterable[Iterable[Any]]) -> None:
        self._writer.writerows(map(_safe, rows))


def _safe(row: Iterable[Any]) -> list[Any]:
    return [_quotable(inert(cell)) if isinstance(cell, str) else cell for cell in row]


def inert(cell: str) -> str:
    """Return a cell with an apostrophe before it where a spreadsheet would take it for a formula.

    Numbers and a lone sign are no formulas and stay as they are.
    """
    return f"'{cell}" if _FORMULA.match(cell) and not _NUMBER.fullmatch(cell) else cell


def _quotable(cell: str) -> str:
    """Return a cell with carriage returns as line feeds where it has no line feed, since the csv module would not quote them."""
    return cell.replace("\r", "\n") if "\r" in cell and "\n" not in cell else cell
