"""Output tables and arrays: files that are written completely or not at all, or rows on standard output."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.lib import format as npy

from molgcn.errors import UserError, shown
from molgcn.files.spreadsheet import Writer
from molgcn.files.whole_file import whole
from molgcn.process.tables import print_table

_TABLES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
_OF_A_RUN = ("metrics.csv", "skipped.csv", "predictions_test.csv")
ARRAYS = (".npy", ".npz")
WriteRows = Callable[[np.ndarray, np.ndarray], None]


def failure_list(output: Path) -> Path:
    """Return the file that lists the rows left out, as `predictions_skipped.csv` for `predictions.csv`.

    It has the same ending as the output, or .csv where the output is no table.
    """
    ending = next((ending for ending in _TABLES if output.name.endswith(ending)), None)
    if ending is None:
        return output.with_name(f"{output.stem}_skipped.csv")
    return output.with_name(f"{output.name.removesuffix(ending)}_skipped{ending}")


def check_output(output: Path, inputs: Sequence[Path], listing: bool = False, more: Sequence[str] = ()) -> None:
    """Make the folder of an output file, or raise UserError where it would replace an input or a file of a run, or cannot be written.

    `listing` says whether :func:`failure_list` is written too, and `more` which endings are accepted beside those of tables.
    """
    if output.is_dir():
        raise UserError(f"output={output} is a folder. Give a file, for example output={output / 'predictions.csv'}.")
    if output.exists() and not output.is_file():  # a pipe or a device is written to directly
        return
    if not output.name.endswith((*_TABLES, *more)):
        raise UserError(f"output={output}: expected a name that ends in {', '.join((*_TABLES, *more))}, or - for standard output.")
    read = [path.resolve() for path in inputs]
    if output.resolve() in read:
        raise UserError(f"output={output} would replace a file that is read. Give another file with output=.")
    if output.name in _OF_A_RUN and any((output.parent / name).exists() for name in ("checkpoints", "config.yaml")):
        raise UserError(f"output={output} would replace a file that the run in {output.parent} wrote. Give another file with output=.")
    if listing and (failure_list(output).resolve() in read or failure_list(output).is_dir()):
        raise UserError(
            f"on_error=skip lists the rows that it leaves out in {failure_list(output)}, which is a folder or a file that is read. "
            "Give another file with output=."
        )
    with as_mistake(output):
        output.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(output.parent, os.W_OK):
        raise UserError(f"output={output} cannot be written: no permission for {output.parent}. Give another file with output=.")


class Table:
    """A table of text cells that is written as CSV or TSV to an open text file."""

    def __init__(self, file: Any, delimiter: str) -> None:
        self._file = file
        self._writer = Writer(file, delimiter)

    def write(self, rows: Iterable[Sequence[str]]) -> None:
        """Write rows and flush the file."""
        self._writer.writerows(rows)
        self._file.flush()


class TerminalTable:
    """A table that takes the same rows as an output file, and prints each row as a table of two columns."""

    def __init__(self) -> None:
        self._header: list[str] | None = None

    def write(self, rows: Iterable[Sequence[str]]) -> None:
        """Print rows. The first row ever written is the header."""
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table as Grid  # an export, which writes no table, does not wait for these

        for row in rows:
            if self._header is None:
                self._header = list(row)
                continue
            table = Grid(show_header=False)
            for name, cell in zip(self._header, row, strict=True):
                table.add_row(escape(shown(name)), escape(shown(cell)))
            print_table(Console(), table)


@contextmanager
def open_table(path: Path | None) -> Iterator[Table]:
    """Open a table to write, CSV or TSV and gzipped as its ending says; None is standard output.

    The file appears under its name when the block ends without an error. UserError says why it cannot be written.
    """
    if path is None:
        yield Table(sys.stdout, ",")
        return
    delimiter = "\t" if ".tsv" in path.suffixes[-2:] else ","
    if path.exists() and not path.is_file():
        with as_mistake(path), open(path, "w", newline="", encoding="utf-8") as file:
            yield Table(file, delimiter)
        return
    with as_mistake(path), whole(path) as temporary, open(temporary, "wb") as binary:
        packed = cast(IO[bytes], gzip.GzipFile("", "wb", 6, binary)) if path.suffix == ".gz" else binary
        with io.TextIOWrapper(packed, encoding="utf-8", newline="") as text:
            yield Table(text, delimiter)


@contextmanager
def as_mistake(path: Path) -> Iterator[None]:
    """Turn an OSError within the block into a UserError that says why the output cannot be written."""
    try:
        yield
    except OSError as error:
        raise UserError(f"output={path} cannot be written: {error.strerror or error}. Give another one with output=.") from error


class GrowingArray:
    """An array on disk in NumPy's format, whose first axis grows with each write, in an empty binary file that can be read and written."""

    def __init__(self, file: IO[bytes], shape: tuple[int, ...], dtype: type[np.generic]) -> None:
        self._file, self._shape, self._dtype = file, shape, np.dtype(dtype)
        self._rows = 0
        self._write_header()

    def write(self, rows: np.ndarray) -> None:
        """Append rows [R, ...]."""
        self._file.write(np.ascontiguousarray(rows, self._dtype).tobytes())
        self._rows += len(rows)

    def finish(self) -> None:
        """Write the final number of rows into the header, and flush the file."""
        self._write_header()
        self._file.flush()

    def _write_header(self) -> None:
        """Write the header. NumPy leaves room in it for a longer first axis, so that it can be overwritten."""
        self._file.seek(0)
        described = {"descr": npy.dtype_to_descr(self._dtype), "fortran_order": False, "shape": (self._rows, *self._shape)}
        npy.write_array_header_1_0(self._file, described)


@contextmanager
def open_array(path: Path, width: int, name: str) -> Iterator[WriteRows]:
    """Open a .npy or .npz file, and yield a function that appends values [R, H] of the input rows with numbers int [R].

    H is the width. A .npy file holds the values, float32 [M, H]. A .npz file holds them under a name, and `rows`, int64 [M], the
    numbers of their input rows. The file appears as that of :func:`open_table`.
    """
    with as_mistake(path), whole(path) as temporary, ExitStack() as stack:
        if path.suffix == ".npy":
            file = stack.enter_context(open(temporary, "w+b"))
            values = GrowingArray(file, (width,), np.float32)
            yield lambda some, _: values.write(some)
            values.finish()
            return
        members = {key: stack.enter_context(tempfile.TemporaryFile(dir=path.parent)) for key in (name, "rows")}
        arrays = GrowingArray(members[name], (width,), np.float32), GrowingArray(members["rows"], (), np.int64)

        def write(*given: np.ndarray) -> None:
            for array, some in zip(arrays, given, strict=True):
                array.write(some)

        yield write
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED, allowZip64=True) as packed:
            for (key, member), array in zip(members.items(), arrays, strict=True):
                array.finish()
                member.seek(0)
                with packed.open(f"{key}.npy", "w", force_zip64=True) as entry:
                    shutil.copyfileobj(member, entry)
