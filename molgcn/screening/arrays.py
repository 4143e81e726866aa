"""NumPy files of numbers that are written row by row."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy

from molgcn.files.whole_file import whole
from molgcn.screening.output import as_mistake

ENDINGS = (".npy", ".npz")


class GrowingArray:
    """An array on disk in NumPy's format, whose first axis grows with each write.

    Args:
        file: an empty binary file that can be read and written.
        shape: the shape of a row.
        dtype: the dtype of the numbers.
    """

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


class ArrayFile:
    """The open file of :func:`open_array`: the array of values and that of the numbers of their rows, or None."""

    def __init__(self, values: GrowingArray, rows: GrowingArray | None) -> None:
        self._values, self._rows = values, rows

    def write(self, values: np.ndarray, rows: np.ndarray) -> None:
        """Append values [R, H] of the input rows with numbers int [R]."""
        self._values.write(values)
        if self._rows is not None:
            self._rows.write(rows)


@contextmanager
def open_array(path: Path, width: int, name: str) -> Iterator[ArrayFile]:
    """Open a .npy or .npz file for values of a width H that are written row by row.

    A .npy file holds the values, float32 [M, H]. A .npz file holds them under a name, and `rows`, int64 [M], the numbers of their input
    rows. The file appears under its name when the block ends without an error.

    Raises:
        UserError: when the file cannot be written. An earlier file of that name then stays as it was.
    """
    with as_mistake(path), whole(path) as temporary, ExitStack() as stack:
        folder = path.parent
        if path.suffix == ".npy":
            file = stack.enter_context(open(temporary, "w+b"))
            values = GrowingArray(file, (width,), np.float32)
            yield ArrayFile(values, None)
            values.finish()
            return
        members = {key: stack.enter_context(tempfile.TemporaryFile(dir=folder)) for key in (name, "rows")}
        arrays = GrowingArray(members[name], (width,), np.float32), GrowingArray(members["rows"], (), np.int64)
        yield ArrayFile(*arrays)
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED, allowZip64=True) as packed:
            for (key, member), array in zip(members.items(), arrays, strict=True):
                array.finish()
                member.seek(0)
                with packed.open(f"{key}.npy", "w", force_zip64=True) as entry:
                    shutil.copyfileobj(member, entry)
