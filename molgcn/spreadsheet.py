"""CSV tables whose cells no spreadsheet runs as formulas: every table that the program writes."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from typing import Any

# Also the full-width signs, which some languages' Excel takes for =, +, - and @
_FORMULA = re.compile(r"[\s\x00-\x1f\x7f\u200b\ufeff]*[=+\-@\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"\s*([=@]|[+-](\d*[.,]?\d*([eE][+-]?\d+)?|inf|nan))\s*", re.ASCII)


class Writer:
    """Writes rows of cells as CSV; text that a spreadsheet would run gets a leading apostrophe.

    Args:
        file: opened with newline="".
        delimiter: what separates cells.
    """

    def __init__(self, file: Any, delimiter: str = ",") -> None:
        self._writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")

    def writerow(self, row: Iterable[Any]) -> None:
        """Writes one row."""
        self._writer.writerow(_safe(row))

    def writerows(self, rows: Iterable[Iterable[Any]]) -> None:
        """Writes rows."""
        self._writer.writerows(map(_safe, rows))


def _safe(row: Iterable[Any]) -> list[Any]:
    return [_quotable(inert(cell)) if isinstance(cell, str) else cell for cell in row]


def inert(cell: str) -> str:
    """A cell as it is, or with an apostrophe before what a spreadsheet would take for a formula; numbers and a lone sign are none."""
    return f"'{cell}" if _FORMULA.match(cell) and not _NUMBER.fullmatch(cell) else cell


def _quotable(cell: str) -> str:
    """A cell whose line ends the csv module sees; it takes a lone carriage return for none and would not quote it."""
    return cell.replace("\r", "\n") if "\r" in cell and "\n" not in cell else cell
