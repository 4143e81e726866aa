"""Turns Excel workbooks (.xlsx) and Parquet files into CSV text, row by row."""

from __future__ import annotations

import csv
import io
import logging
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, time
from typing import IO, Any, BinaryIO

from molgcn.errors import UserError

log = logging.getLogger(__name__)

_UNNAMED_INDEX = re.compile(r"__index_level_\d+__")  # as pandas stores row labels in Parquet


def csv_text(begin: bytes, file: BinaryIO, name: str, has_header: bool) -> IO[bytes] | None:
    """Return a table as a temporary file of CSV text in UTF-8, or None where the file is neither a workbook nor Parquet.

    Of a workbook it is the first sheet, with the values that Excel computed. Blank rows and columns without a name are left out. Without a
    header all columns are kept, and the names that a Parquet file has are not a row.

    Args:
        begin: the first bytes of the file, by which the format is known.
        file: the file, at its beginning.
        name: name of the file, for messages.
        has_header: whether the first row of a workbook has the columns' names.

    Raises:
        UserError: when the file is damaged, or the package that reads it is not installed.
    """
    reader = next((reader for magic, reader in _READERS.items() if begin.startswith(magic)), None)
    if reader is None:
        return None
    text = tempfile.TemporaryFile()  # noqa: SIM115
    try:
        source = file if file.seekable() else io.BytesIO(file.read())
        lines = io.TextIOWrapper(text, encoding="utf-8", newline="", write_through=True)
        csv.writer(lines).writerows(reader(source, name, has_header))
        lines.detach()
    except ImportError as error:
        text.close()
        raise UserError(
            f"{name} needs the package {error.name} to be read. Run `pip install molgcn[tables]`, or save the table as CSV."
        ) from error
    except UserError:
        text.close()
        raise
    except Exception as error:  # the packages raise errors of many kinds for files that are damaged
        text.close()
        raise UserError(f"{name} is damaged: {' '.join(str(error).split())[:200]}. Fetch it again, or save the table as CSV.") from error
    text.seek(0)
    return text


def _workbook(file: BinaryIO, name: str, has_header: bool) -> Iterator[Sequence[str]]:
    import zipfile

    import openpyxl

    with zipfile.ZipFile(file) as archive:
        if "[Content_Types].xml" not in archive.namelist():
            raise UserError(f"{name} is a zip archive. Unpack it, and give the file in it.")
    book = openpyxl.load_workbook(file, read_only=True, data_only=True)
    if not book.worksheets:
        raise UserError(f"{name} has no sheet with cells. Expected a table in its first sheet.")
    sheet = book.worksheets[0]
    if len(book.sheetnames) > 1:
        log.info("%s: of its sheets (%s) the first is read", name, ", ".join(book.sheetnames))
    sheet.reset_dimensions()  # some programs write wrong ones

    def rows() -> Iterator[Sequence[Any]]:
        return (row for row in sheet.iter_rows(values_only=True) if any(cell is not None for cell in row))

    header = next(rows(), ()) if has_header else range(max(map(len, rows()), default=0))
    places = [place for place, cell in enumerate(header) if cell is not None]
    for row in rows():
        yield [_cell(row[place]) if place < len(row) else "" for place in places]


def _parquet(file: BinaryIO, name: str, has_header: bool) -> Iterator[Sequence[str]]:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.parquet.ParquetFile(file)
    names = [column for column in table.schema_arrow.names if not _UNNAMED_INDEX.fullmatch(column)]
    if has_header:
        yield names
    for batch in table.iter_batches(columns=names):
        columns = (column.cast(pyarrow.string()) if column.type == pyarrow.float32() else column for column in batch.columns)
        yield from zip(*([_cell(cell) for cell in column.to_pylist()] for column in columns), strict=True)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value.isoformat() if isinstance(value, date | time) else str(value)


_READERS: dict[bytes, Callable[[BinaryIO, str, bool], Iterable[Sequence[str]]]] = {b"PK\x03\x04": _workbook, b"PAR1": _parquet}
