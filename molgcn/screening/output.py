"""Tables that appear complete or not at all, or go to standard output row by row."""

from __future__ import annotations

import gzip
import io
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from molgcn.errors import UserError
from molgcn.spreadsheet import Writer

_ENDINGS = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
_OF_A_RUN = ("metrics.csv", "skipped.csv", "predictions_test.csv")


def failure_list(output: Path) -> Path:
    """Where rows that are left out are listed: `predictions_skipped.csv` beside `predictions.csv`, likewise with the other endings.

    Beside what is no table it is CSV.
    """
    ending = next((ending for ending in _ENDINGS if output.name.endswith(ending)), None)
    if ending is None:
        return output.with_name(f"{output.stem}_skipped.csv")
    return output.with_name(f"{output.name.removesuffix(ending)}_skipped{ending}")


def check_output(output: Path, inputs: Sequence[Path], listing: bool = False, more: Sequence[str] = ()) -> None:
    """Refuses, before any work, a file that would replace an input or a run's own, is of another kind or cannot be written.

    Args:
        output: the file.
        inputs: the files that are read.
        listing: whether :func:`failure_list` is written too.
        more: endings of its name that are taken beside those of tables.

    Raises:
        UserError: saying which, and what to give instead.
    """
    if output.is_dir():
        raise UserError(f"output={output} is a folder. Give a file, for example output={output / 'predictions.csv'}.")
    if output.exists() and not output.is_file():  # a pipe or a device: written as it is
        return
    if not output.name.endswith((*_ENDINGS, *more)):
        raise UserError(f"output={output}: expected a name that ends in {', '.join((*_ENDINGS, *more))}, or - for standard output.")
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
    """Rows of text cells, as CSV or, with a name that says so, TSV."""

    def __init__(self, file: Any, delimiter: str) -> None:
        self._file = file
        self._writer = Writer(file, delimiter)

    def write(self, rows: Iterable[Sequence[str]]) -> None:
        """Writes rows and hands them to the system."""
        self._writer.writerows(rows)
        self._file.flush()


@contextmanager
def open_table(path: Path | None) -> Iterator[Table]:
    """A table on disk, which appears under its name when the block ends well; None is standard output.

    Raises:
        UserError: when it cannot be written; the file of that name, if there was one, is then as it was.
    """
    if path is None:
        yield Table(sys.stdout, ",")
        return
    delimiter = "\t" if ".tsv" in path.suffixes[-2:] else ","
    if path.exists() and not path.is_file():
        with as_mistake(path), open(path, "w", newline="", encoding="utf-8") as file:
            yield Table(file, delimiter)
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with as_mistake(path), open(temporary, "wb") as binary:
            packed = cast(IO[bytes], gzip.GzipFile("", "wb", 6, binary)) if path.suffix == ".gz" else binary
            with io.TextIOWrapper(packed, encoding="utf-8", newline="") as text:
                yield Table(text, delimiter)
        with as_mistake(path):
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def as_mistake(path: Path) -> Iterator[None]:
    """Say of an output that cannot be written why, and what to do."""
    try:
        yield
    except OSError as error:
        raise UserError(f"output={path} cannot be written: {error.strerror or error}. Give another file with output=.") from error
