"""Reads columns of a CSV file (also .gz, .tsv), and names file, column and row of every mistake."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from molgcn.data.delimited import Delimited, read_delimited, separator_of
from molgcn.data.strings import PackedStrings
from molgcn.data.text import open_text
from molgcn.errors import UserError, counted, first_of, shown
from molgcn.files.mapping_text import typed_mapping

log = logging.getLogger(__name__)

_NOT_NUMBERS = frozenset({"na", "n/a", "nan", "null", "none"})  # words for a missing number, which may be names elsewhere
_MOST_WORDS = 20
_YES = frozenset({"yes", "y", "true", "t", "active", "positive", "pos", "+"})  # class 1 of two
_WITHOUT_POINT = re.compile(r"[+-]?(\d+|\d*,\d+)([eE][+-]?\d+)?", re.ASCII)
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}([.,]\d{3})+", re.ASCII)


class Columns(dict[str, PackedStrings]):
    """The text of columns by their names, with one entry for each row.

    Args:
        path: the file.
        decimal_comma: whether 1,5 is a number, as in tables of German or French spreadsheets.
        text: text of each column.
        kind: "sdf" if the columns are properties of an SDF's records.
    """

    def __init__(self, path: Path, decimal_comma: bool, text: dict[str, PackedStrings], kind: str = "smiles") -> None:
        super().__init__(text)
        self.path = path
        self.decimal_comma = decimal_comma
        self.kind = kind

    def place(self, column: str, row: int) -> str:
        """Return the file, column and row of a cell, for messages."""
        if self.kind == "sdf":
            return f"{self.path}, property '{shown(column)}', record {row} (counted from 0)"
        return f"{self.path}, column '{shown(column)}', row {row} (counted from 0, without the header)"

    def numbers(self, column: str, texts: Sequence[str] | None = None) -> np.ndarray:
        """Return the numbers in a column, float64 [M], NaN where the cell is missing (:func:`is_missing`).

        Where 1,5 is a number, a column may have points or commas, but not both, since 1.234 would be ambiguous. If all of them could
        separate thousands, a warning is logged.

        Args:
            column: name of the column.
            texts: texts that stand for the column's cells. Default: the cells.

        Raises:
            UserError: when a cell is not a number or infinite, naming its row, or when every cell is missing.
        """
        values = self[column] if texts is None else texts
        result = np.full(len(values), np.nan)
        comma = self.decimal_comma and any("," in text for text in values)
        wrong: list[int] = []
        for row, text in enumerate(values):
            try:
                result[row] = number(text, comma)
            except ValueError:
                wrong.append(row)
        infinite = np.flatnonzero(np.abs(result) > np.finfo(np.float32).max)
        if wrong:
            row, text = wrong[0], values[wrong[0]]
            advice = _as_classes(column, values) or _advice(text.strip(), comma)
            others = first_of(len(wrong), len(values), "cell")
            raise UserError(f"{self.place(column, row)}: '{shown(text)}' is not a number. {advice} {others}")
        if len(infinite):
            row, others = infinite[0], first_of(len(infinite), len(values), "cell")
            raise UserError(f"{self.place(column, row)}: '{shown(values[row])}' is infinite (float32). Leave it empty if missing. {others}")
        if np.isnan(result).all():
            raise UserError(
                f"{self.path}: all {counted(len(result), 'value')} of column '{shown(column)}' are missing. Name another column."
            )
        if self.decimal_comma:
            _warn_of_thousands(values, self.path, column)
        return result

    def mostly_numbers(self, column: str) -> bool:
        """Return whether at least half of a column's cells that are not missing are finite numbers."""
        known = [text for text in self[column] if not is_missing(text, of_numbers=True)]
        return 0 < len(known) <= 2 * sum(map(self._is_number, known))

    def _is_number(self, text: str) -> bool:
        try:
            return bool(np.isfinite(number(text, self.decimal_comma and "," in text)))
        except ValueError:
            return False


@contextmanager
def _open(path: Path, wanted: Sequence[str], has_header: bool) -> Iterator[Delimited]:
    with open_text(path, has_header=has_header) as lines:
        yield read_delimited(lines, separator_of(path), wanted, has_header)


def column_names(path: Path, has_header: bool = True) -> list[str]:
    """Return the names of a CSV file's columns, 0, 1, 2 and so on where it has no header."""
    with _open(path, (), has_header) as table:
        return table.header


def check_columns(path: Path, has_header: bool = True, **columns: Sequence[str]) -> None:
    """Check that a CSV file has the columns that keys of `dataset` name, as in `check_columns(path, targets=["y"])`."""
    with _open(path, [name for names in columns.values() for name in names], has_header) as table:
        for key, names in columns.items():
            for name in names:
                table.place(name, f"dataset.{key}")


def read_columns(path: Path, columns: Sequence[str], key: str = "targets", has_header: bool = True) -> Columns:
    """Read the named columns as text. Blank lines are not rows. A message says that `dataset.<key>` named a column that is missing."""
    with _open(path, columns, has_header) as table:
        places = [table.place(column, f"dataset.{key}") for column in columns]
        table.say_separator(separator_of(path))
        cells = PackedStrings.columns([row[place] for place in places] for row in table.rows)
    if not cells:
        raise UserError(f"{path} has a header but no rows. Expected one row per molecule.")
    return Columns(path, table.decimal_comma, dict(zip(columns, cells, strict=True)))


def is_missing(cell: str, of_numbers: bool) -> bool:
    """Return whether a cell stands for a missing value. Blanks do not count.

    In a column of numbers NA, N/A, NaN, null and None are missing numbers, whatever their case. In a column of names, such as groups or
    classes, they are names like any other, and only an empty cell is missing.
    """
    text = cell.strip()
    return not text or (of_numbers and text.lower() in _NOT_NUMBERS)


def number(text: str, comma: bool) -> float:
    """Return the number in a cell, which may be written with a decimal comma, NaN where it is missing (:func:`is_missing`).

    Other texts raise ValueError.
    """
    if is_missing(text, of_numbers=True):
        return np.nan
    stripped = text.strip()
    if not comma:
        return float(stripped.replace("_", "?"))  # Python ignores _ in numbers: 1_5 would be 15
    if not _WITHOUT_POINT.fullmatch(stripped):
        raise ValueError
    return float(stripped.replace(",", "."))


def _warn_of_thousands(values: Sequence[str], path: Path, column: str) -> None:
    cells = [text.strip() for text in values]
    marked = [text for text in cells if "." in text or "," in text]
    if marked and any(map(str.isdecimal, cells)) and all(map(_THOUSANDS.fullmatch, marked)):
        log.warning(
            "%s, column '%s': '%s' is read as %s. If it means %s, save the file without signs between thousands",
            *(path, shown(column), marked[0], marked[0].replace(",", "."), re.sub("[.,]", "", marked[0])),
        )


def _as_classes(column: str, values: Sequence[str]) -> str | None:
    """Return advice on how to number the classes of a column that holds nothing but a few words, None for any other column."""
    words = {text.strip() for text in values if not is_missing(text, of_numbers=False)}
    classes = {word for word in words if not is_missing(word, of_numbers=True)}
    if not 2 <= len(classes) <= _MOST_WORDS or any(character.isdigit() for word in words for character in word):
        return None
    in_order = sorted(classes, key=lambda word: (word.lower() in _YES, word))
    task = "classification" if len(classes) == 2 else "multiclass"
    numbered = [*((word, number) for number, word in enumerate(in_order)), *((word, None) for word in sorted(words - classes))]
    missing = ", where null is a missing value" if words > classes else ""
    return f"If its words are classes, number them: {typed_mapping('dataset.labels', {column: dict(numbered)})} (task={task}){missing}."


def _advice(text: str, comma: bool) -> str:
    if text[0] in "<>\u2264\u2265":
        return "Values that are only known to lie below or above a number are learned with dataset.bounded=true."
    if "\u2212" in text or "\u2013" in text:
        return "Its minus sign is not the '-' of numbers. Replace it."
    if comma:
        return "Cells of this column have decimal commas, so that none may have a point. Correct it, or leave it empty if missing."
    if _THOUSANDS.fullmatch(text):
        return "Write it without signs between thousands, or with a decimal point."
    if _WITHOUT_POINT.fullmatch(text):
        return "It has a decimal comma: write a point, or separate cells by semicolons, as Excel does where it writes such commas."
    return "Correct it, or leave the cell empty if the value is missing."
