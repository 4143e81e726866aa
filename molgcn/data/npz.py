"""Reads .npz files of numbers."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from molgcn.errors import UserError


def read_arrays(path: Path, option: str, expected: str) -> tuple[dict[str, np.ndarray], np.ndarray | None]:
    """Return the arrays of a .npz file by name, and the array `names`, which names columns, or None.

    Nothing in the file is executed. A file that cannot be read raises UserError, which names it by `option` and says what is `expected`.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise UserError(f"{option}={path} cannot be read: {error}. {expected}.") from error
    return arrays, arrays.pop("names", None)


def column_names(names: np.ndarray | None, width: int, prefix: str, where: str) -> tuple[str, ...]:
    """Return the names of the columns of a matrix: those of the array `names`, by default the prefix and the column's number.

    Names that do not fit raise UserError, which says `where` they are.
    """
    if names is None:
        return tuple(f"{prefix}_{column}" for column in range(width))
    if names.ndim != 1 or len(names) != width or len({*names.tolist()}) < len(names):
        raise UserError(f"{where}: names has shape {list(names.shape)}; expected {width} different names.")
    return tuple(map(str, names.tolist()))
