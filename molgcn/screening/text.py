"""Opens the text that molecules are read from, a file or standard input, gzip or not, and says how much of it was read."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from molgcn.errors import UserError

_GZIP = b"\x1f\x8b"


@dataclass
class Text:
    """An open text.

    Attributes:
        name: of the file, for messages.
        lines: unpacked and decoded, with their ends as they are.
        raw: the bytes below, as they lie on disk.
        size: how many bytes there are, or None where nobody knows.
    """

    name: str
    lines: TextIO
    raw: io.BufferedReader
    size: int | None

    def position(self) -> int:
        """Bytes read so far of `size`."""
        return self.raw.tell()


@contextmanager
def open_text(path: Path | None) -> Iterator[Text]:
    """Opens a file, or standard input for None; gzip is recognised by its first bytes, whatever the name says.

    Raises:
        UserError: when the file cannot be opened. What goes wrong in reading it later is for :func:`as_mistake` to report.
    """
    name = source_name(path)
    if path is None and sys.stdin is None:
        raise UserError("standard input is closed. Give it something to read, or a file with input=.")
    try:
        raw = sys.stdin.buffer if path is None else open(path, "rb")  # noqa: SIM115
    except OSError as error:
        raise UserError(
            f"{name} cannot be read: {error.strerror or error}. Give an existing file with input=, or input=- to read standard input."
        ) from error
    assert isinstance(raw, io.BufferedReader)
    with raw:
        size = os.fstat(raw.fileno()).st_size if path is not None and raw.seekable() else None
        binary = gzip.GzipFile(fileobj=raw) if raw.peek(2)[:2] == _GZIP else raw
        lines = io.TextIOWrapper(binary, encoding="utf-8-sig", newline="")
        yield Text(name, lines, raw, size)


@contextmanager
def as_mistake(name: str) -> Iterator[None]:
    """Reports what goes wrong while reading in the block as a mistake in the file called `name`."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise UserError(
            f"{name} is not UTF-8 text: {error}. Expected SMILES or an SDF; `iconv -f latin1 -t utf-8` converts older files."
        ) from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{name} is damaged or cut off: {error}. Fetch it again.") from error
    except OSError as error:
        raise UserError(f"{name} cannot be read: {error.strerror or error}.") from error


@contextmanager
def rereadable(path: Path | None) -> Iterator[Path]:
    """A file that can be read twice: `path` itself, or a temporary copy of standard input or of a pipe."""
    if path is not None and (path.is_file() or not path.exists()):
        yield path
        return
    with tempfile.NamedTemporaryFile() as copy:
        with open_text(path) as text:
            shutil.copyfileobj(text.raw, copy, 1 << 20)
        copy.flush()
        yield Path(copy.name)


def source_name(path: Path | None) -> str:
    """What messages call a file."""
    return "standard input" if path is None else str(path)
