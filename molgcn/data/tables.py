"""Columns of a CSV file (also .gz, .tsv), with every mistake named by file, column and row."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from molgcn.data.config import nearest
from molgcn.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none"})


def _read(path: Path, **options: Any) -> pd.DataFrame:
    import pandas as pd

    separator = "\t" if path.name.removesuffix(".gz").endswith(".tsv") else ","
    try:
        frame: pd.DataFrame = pd.read_csv(
            path, sep=separator, dtype=str, keep_default_na=False, na_filter=False, encoding="utf-8-sig", **options
        )
    except pd.errors.EmptyDataError as error:
        raise UserError(f"{path} is empty. Expected a header line and one row a molecule.") from error
    except (pd.errors.ParserError, UnicodeDecodeError, EOFError, zlib.error) as error:
        raise UserError(f"{path} is not a readable CSV file: {str(error).strip()}. Correct or fetch it again.") from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"{path} cannot be read: {reason}. Give an existing CSV file as dataset.path.") from error
    return frame


def column_names(path: Path) -> list[str]:
    """The header of a CSV file.

    Raises:
        UserError: when the file is missing, empty or not CSV.
    """
    if path.is_dir():
        raise UserError(f"{path} is a folder. Give the CSV file itself as dataset.path.")
    return [str(name) for name in _read(path, nrows=0, index_col=False).columns]


def read_columns(path: Path, columns: Sequence[str], key: str = "targets") -> pd.DataFrame:
    """The named columns as text, one row a molecule.

    Args:
        path: the file.
        columns: names, as in the header.
        key: configuration key that named the columns, for messages.

    Raises:
        UserError: when a column is missing (the nearest is named), there are no rows, or the file is not CSV.
    """
    known = column_names(path)
    for column in columns:
        if column not in known:
            raise UserError(f"{path} has no column '{column}' (dataset.{key}).{nearest(column, known)}")
    # A row with more cells than the header is an error; index_col=False would silently drop them.
    frame = _read(path, usecols=lambda name: name in set(columns))
    if len(frame) == 0:
        raise UserError(f"{path} has a header but no rows. Expected one row a molecule.")
    return frame


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
            result[row] = float(stripped)
        except ValueError as error:
            raise UserError(
                f"{path}, column '{column}', row {row} (counted from 0, without the header): '{text}' is not a number. "
                "Correct it, or leave the cell empty if the value is missing."
            ) from error
        if np.isinf(result[row]):
            raise UserError(f"{path}, column '{column}', row {row}: '{text}' is infinite. Leave it empty if missing.")
    if np.isnan(result).all():
        raise UserError(f"{path}: all {len(result)} values of column '{column}' are missing. Name another target.")
    return result
