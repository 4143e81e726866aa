"""Columns of a CSV file (also .gz, .tsv), with every mistake named by file, column and row."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from molgcn.data.config import nearest
from molgcn.errors import UserError

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none"})
csv.field_size_limit(2**31 - 1)  # cells may hold a spectrum or a learned representation; Python's limit is 131,072 characters


@contextmanager
def _reader(path: Path) -> Iterator[tuple[list[str], Iterator[list[str]]]]:
    """The header and an iterator over the rows; what goes wrong in the block is reported as a mistake in the file."""
    if path.is_dir():
        raise UserError(f"{path} is a folder. Give the CSV file itself as dataset.path.")
    name = path.name.lower()
    opener = gzip.open if name.endswith(".gz") else open
    delimiter = "\t" if name.removesuffix(".gz").endswith(".tsv") else ","
    lines = 0
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            header = next(reader, [])
            if not any(header):
                raise UserError(f"{path} is empty. Expected a header line and one row a molecule.")

            def rows() -> Iterator[list[str]]:
                nonlocal lines
                for row in reader:
                    lines = reader.line_num
                    if row and len(row) != len(header):
                        raise UserError(
                            f"{path}, line {lines}: {len(row)} cells where the header has {len(header)}. Correct the line; a cell that "
                            "holds the separator needs quotation marks around it."
                        )
                    if row:
                        yield row

            yield header, rows()
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8 text (after line {lines}): {error}. `iconv -f latin1 -t utf-8` converts older files."
        ) from error
    except (csv.Error, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path} is not a readable CSV file (after line {lines}): {error}. Correct it or fetch it again.") from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"{path.absolute()} cannot be read: {reason}. Give an existing CSV file as dataset.path.") from error


def column_names(path: Path) -> list[str]:
    """The header of a CSV file.

    Raises:
        UserError: when the file is missing, empty or not CSV.
    """
    with _reader(path) as (header, _):
        return header


def read_columns(path: Path, columns: Sequence[str], key: str = "targets") -> dict[str, list[str]]:
    """The named columns as text, one entry a row; blank lines are no rows.

    Args:
        path: the file.
        columns: names, as in the header.
        key: configuration key that named the columns, for messages.

    Raises:
        UserError: when a column is missing (the nearest is named) or there twice, there are no rows, or the file is not CSV.
    """
    with _reader(path) as (header, rows):
        for column in columns:
            if column not in header:
                raise UserError(f"{path} has no column '{column}' (dataset.{key}).{separated_otherwise(header) or nearest(column, header)}")
            if header.count(column) > 1:
                raise UserError(f"{path} has {header.count(column)} columns named '{column}' (dataset.{key}). Rename all but one.")
        places = [header.index(column) for column in columns]
        picked = [[row[place] for place in places] for row in rows]
    if not picked:
        raise UserError(f"{path} has a header but no rows. Expected one row a molecule.")
    return {column: [row[i] for row in picked] for i, column in enumerate(columns)}


def separated_otherwise(header: Sequence[str]) -> str:
    """A sentence where a header's only cell holds what other programs separate cells by; else nothing."""
    found = [name for name, sign in (("semicolons", ";"), ("tabs", "\t"), ("commas", ",")) if len(header) == 1 and sign in header[0]]
    return f" Its header holds {found[0]}: separate cells by commas, or by tabs in a file named .tsv." if found else ""


def numbers(values: Sequence[str], path: Path, column: str) -> np.ndarray:
    """float64 [M] of a column's text, NaN where the cell is empty or says NA, NaN, null or None.

    Raises:
        UserError: for another text or an infinite number, with its row; or when every cell is missing.
    """
    result = np.full(len(values), np.nan)
    for row, text in enumerate(values):
        stripped = text.strip()
        if stripped.lower() in MISSING:
            continue
        try:
            result[row] = float(stripped.replace("_", "?"))  # which Python passes over: 1_5 would be 15
        except ValueError as error:
            raise UserError(
                f"{path}, column '{column}', row {row} (counted from 0, without the header): '{text}' is not a number. "
                "Correct it, or leave the cell empty if the value is missing."
            ) from error
        if abs(result[row]) > np.finfo(np.float32).max:
            raise UserError(f"{path}, column '{column}', row {row}: '{text}' is infinite (float32). Leave it empty if missing.")
    if np.isnan(result).all():
        raise UserError(f"{path}: all {len(result)} values of column '{column}' are missing. Name another target.")
    return result
