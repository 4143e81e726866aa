"""Opens the text from which molecules are read, a file or standard input, gzip or not, and tracks how much of it was read."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, TextIO

from molgcn.data.binary_tables import csv_text
from molgcn.errors import UserError, shown

RECORD_MB = 16.0
_AROUND = 20  # characters that a message shows before and after a byte that is not UTF-8
_GZIP = b"\x1f\x8b"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_OTHER_FORMATS = {  # what files begin with that are no text
    b"\xd0\xcf\x11\xe0": "an old Excel workbook (.xls). Save it as .xlsx or 'CSV UTF-8'",
    b"BZh": "compressed by bzip2. Unpack it with bunzip2, or compress it with gzip",
    b"\xfd7zXZ": "compressed by xz. Unpack it with unxz, or compress it with gzip",
    b"\x28\xb5\x2f\xfd": "compressed by zstd. Unpack it with unzstd, or compress it with gzip",
}
_OTHER_ENDINGS = (".json", ".jsonl", ".mol2", ".mol", ".pdb", ".pdbqt", ".xyz", ".cif", ".ods", ".feather", ".xls")
READ = "tables (.csv, .tsv, .xlsx, .parquet), lists of SMILES (.smi) and SDF (.sdf)"


class Lines(Iterator[str]):
    """The unpacked and decoded lines of a text with their line ends, which limits the length of records.

    Args:
        file: the text, opened with newline="".
        name: name of the text, for messages.
        limit: number of characters that a record, of one line or several, may have. A small gzip file may hold a record of gigabytes.
        option: key of the configuration that named the file, for messages.
        raw: the bytes as they are on disk, or those of the CSV that a workbook or Parquet file stands for.
        size: number of these bytes, or None if it is not known.

    Raises:
        UserError: while lines are read, when a record is too long, or the text cannot be read or decoded.
    """

    def __init__(self, file: TextIO, name: str, limit: int, option: str, raw: IO[bytes], size: int | None) -> None:
        self.name = name
        self.number = 0
        self.raw, self.size = raw, size
        self._file, self._limit, self._option = file, limit, option
        self.begin()

    def begin(self, row: int | None = None) -> None:
        """Let a record begin with the next line. It has the given number, counted from 0, or is no row of a table."""
        self._row, self._first, self._left = row, self.number + 1, self._limit

    def position(self) -> int:
        """Return the number of bytes of `size` that were read so far."""
        return self.raw.tell()

    @property
    def place(self) -> str:
        """Name of the text, row and line of the record that is being read, for messages."""
        row = "" if self._row is None else f", row {self._row} (counted from 0, without a header)"
        return f"{self.name}{row}, line {self._first}"

    def __next__(self) -> str:
        try:
            line = self._file.readline(self._left + 1)
        except UnicodeDecodeError as error:
            if self.number == 0 and error.object.startswith(_UTF_16):
                raise self._utf_16() from error
            place = error.object[max(error.start - _AROUND, 0) : error.start + _AROUND].decode("latin-1")
            raise UserError(
                f"{self.name} is not UTF-8 text (in line {self.number + 1} or after it): as Latin-1 the place reads '{shown(place)}'. Save "
                "it as UTF-8 (in Excel: CSV UTF-8); `iconv -f latin1 -t utf-8` converts older files."
            ) from error
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise UserError(f"{self.name} is damaged or cut off (after line {self.number}): {error}. Fetch it again.") from error
        except OSError as error:
            raise UserError(f"{self.name} cannot be read: {error.strerror or error}.") from error
        self._left -= len(line)
        if self._left < 0:
            more = " Allow more with max_record_mb=." if self._option == "input" else ""
            raise UserError(
                f"{self.place}: the record is longer than {self._limit / 1e6:g} MB. Shorten it or leave it out; a quotation mark without "
                f"its second one also makes one cell of all that follows.{more}"
            )
        if not line:
            raise StopIteration
        if self.number == 0 and "\0" in line:
            raise self._utf_16()
        self.number += 1
        return line

    def _utf_16(self) -> UserError:
        return UserError(
            f"{self.name} is UTF-16 text, as Excel's 'Unicode Text' is. Save it as 'CSV UTF-8', or convert it with "
            "`iconv -f utf-16 -t utf-8`."
        )


@contextmanager
def open_text(
    path: Path | None,
    option: str = "dataset.path",
    max_record_mb: float = RECORD_MB,
    name: str | None = None,
    has_header: bool = True,
) -> Iterator[Lines]:
    """Open a text, a file or standard input (None). Gzip is recognised by its first bytes, whatever the file's name.

    An Excel workbook or Parquet file is read as the CSV that it stands for, with or without a header. Messages name the key that named
    the file (`option`). A record, of one line or several, may have `max_record_mb` million characters.
    """
    name = name or source_name(path)
    if path is None and sys.stdin is None:
        raise UserError("standard input is closed. Give it something to read, or a file with input=.")
    if path is not None and path.is_dir():
        raise UserError(f"{path} is a folder. Give the file itself as {option}=.")
    try:
        raw = sys.stdin.buffer if path is None else open(path, "rb")  # noqa: SIM115
    except OSError as error:
        found = name if path is None else path.absolute()
        raise UserError(f"{found} cannot be read: {error.strerror or error}. Give an existing file as {option}=.") from error
    assert isinstance(raw, io.BufferedReader)
    with raw:
        begin = raw.peek(8)
        for other, what in _OTHER_FORMATS.items():
            if begin.startswith(other):
                raise UserError(f"{name} is {what}.")
        if path is not None and path.name.lower().removesuffix(".gz").endswith(_OTHER_ENDINGS):
            raise UserError(f"{name} is of a kind that is not read. Read are {READ}, also with .gz. Convert it to one of them.")
        table = csv_text(begin, raw, name, has_header)
        with table or nullcontext(raw) as source:
            size = os.fstat(source.fileno()).st_size if (path or table) is not None and source.seekable() else None
            binary = gzip.GzipFile(fileobj=source) if begin[:2] == _GZIP else source
            file = io.TextIOWrapper(binary, encoding="utf-8-sig", newline="")
            yield Lines(file, name, int(max_record_mb * 1e6), option, source, size)


def smiles_lines(lines: Lines) -> Iterator[list[str]]:
    """Yield the first word and the rest of every line that is not blank, the columns of a list of SMILES."""
    for line in lines:
        words = line.split(None, 1)
        if words:
            yield [words[0], words[1].rstrip() if len(words) > 1 else ""]
        lines.begin()


@contextmanager
def rereadable(path: Path | None) -> Iterator[Path]:
    """Give a file that can be read twice: `path` itself, or a temporary copy of standard input or a pipe."""
    if path is not None and (path.is_file() or path.is_dir() or not path.exists()):
        yield path
        return
    with tempfile.NamedTemporaryFile() as copy:
        with open_text(path, "input") as lines:
            shutil.copyfileobj(lines.raw, copy, 1 << 20)
        copy.flush()
        yield Path(copy.name)


def source_name(path: Path | None) -> str:
    return "standard input" if path is None else str(path)
