"""Reads .npz files of numbers, such as a matrix for each row of a data set with the features of its atoms."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from molgcn.data.segments import pointers, segment_index
from molgcn.errors import UserError, counted

_EXPECTED = (
    "Expected a .npz file with a matrix of numbers for each molecule, as numpy.savez(path, *matrices) writes it, or one matrix for all of "
    "them and `offsets`, as numpy.savez(path, x=matrix, offsets=offsets) writes them"
)


@dataclass(frozen=True)
class RowMatrices:
    """M matrices with the same K columns, one below another."""

    values: np.ndarray  # float32 [N, K], the rows of all matrices
    offsets: np.ndarray  # int64 [M + 1], the first row of each matrix in `values`, and N
    names: tuple[str, ...]  # names of the K columns

    @classmethod
    def of(cls, matrices: Sequence[np.ndarray], names: Sequence[str]) -> RowMatrices:
        """Join M matrices with K columns, which `names` names. One without numbers, whatever its shape, has no rows."""
        sizes = np.array([len(one) if one.size else 0 for one in matrices], np.int64)
        filled = [_as_float32(one) for one in matrices if one.size]
        return cls(np.concatenate([np.empty((0, len(names)), np.float32), *filled]), pointers(sizes), tuple(names))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> np.ndarray:
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    @property
    def sizes(self) -> np.ndarray:
        """Number of rows of each matrix, int64 [M]."""
        return np.diff(self.offsets)

    def check_rows(self, num_rows: int, where: str, title: str, empty: str) -> None:
        """Raise UserError unless there are as many matrices as the data `title` has rows. It says where an `empty` one belongs."""
        if len(self) != num_rows:
            raise UserError(
                f"{where} has the matrices of {counted(len(self), 'molecule')}, but {title} has {num_rows:,} rows. Give one for each row "
                f"of the data, an empty one {empty}. One matrix for all needs `offsets`."
            )

    def take(self, rows: np.ndarray) -> RowMatrices:
        """Return the matrices at `rows`, int64 [m], in that order."""
        sizes = self.sizes[rows]
        return RowMatrices(self.values[segment_index(self.offsets[rows], sizes)], pointers(sizes), self.names)


def read_row_matrices(path: Path, option: str, prefix: str) -> RowMatrices:
    """Read a .npz file that has a matrix for each row of a data set.

    It holds the arrays arr_0, arr_1, ..., or one matrix with all rows and `offsets`, int [M + 1]. An array `names` may name the columns.
    An array without numbers, whatever its shape, has no rows.

    Args:
        path: the file.
        option: the key that names the file, for messages.
        prefix: what names of columns start with where the file names none.

    Raises:
        UserError: when the file cannot be read, holds something else, or matrices have different numbers of columns.
    """
    where = f"{option}={path}"
    arrays, names = read_arrays(path, option, _EXPECTED)
    offsets = arrays.pop("offsets", None)
    if offsets is not None:
        values, bounds = _one_matrix(arrays, offsets, where)
        return RowMatrices(values, bounds, names_of_columns(names, values.shape[1], prefix, where))
    if not arrays or any(f"arr_{number}" not in arrays for number in range(len(arrays))):
        raise UserError(f"{where} has {len(arrays)} arrays ({', '.join([*arrays][:5]) or 'none'}). {_EXPECTED}.")
    matrices = [arrays[f"arr_{number}"] for number in range(len(arrays))]
    width = _width(matrices, where)
    return RowMatrices.of(matrices, names_of_columns(names, width, prefix, where))


def _width(matrices: Sequence[np.ndarray], where: str) -> int:
    """Return the number of columns of the matrices of all molecules, which must be the same."""
    width = 0
    for number, matrix in enumerate(matrices):
        if not matrix.size:
            continue
        _check_matrix(matrix, f"{where}, molecule {number} (arr_{number})")
        width = width or matrix.shape[1]
        if matrix.shape[1] != width:
            raise UserError(
                f"{where}, molecule {number} (arr_{number}): it has {matrix.shape[1]} columns, and those before have {width}. Give all "
                "molecules the same columns."
            )
    if not width:
        raise UserError(f"{where} has no numbers. {_EXPECTED}.")
    return width


def _one_matrix(arrays: Mapping[str, np.ndarray], offsets: np.ndarray, where: str) -> tuple[np.ndarray, np.ndarray]:
    if len(arrays) != 1:
        raise UserError(f"{where} has {len(arrays)} arrays beside `offsets` ({', '.join(arrays) or 'none'}). {_EXPECTED}.")
    ((name, values),) = arrays.items()
    _check_matrix(values, f"{where}, {name}")
    numbers = offsets.ndim == 1 and offsets.dtype.kind in "iu" and len(offsets) > 1
    bounds = offsets.astype(np.int64) if numbers else np.zeros(1, np.int64)
    if bounds[0] != 0 or bounds[-1] != len(values) or (np.diff(bounds) < 0).any():
        raise UserError(
            f"{where}: expected `offsets` to be the first row of each molecule in {name}, and behind them the number of its rows, "
            f"{len(values):,}: whole numbers that start with 0 and do not fall."
        )
    return _as_float32(values), bounds


def _check_matrix(values: np.ndarray, name: str) -> None:
    if values.ndim != 2 or not values.size or values.dtype.kind not in "fiub":
        raise UserError(f"{name} has shape {list(values.shape)} and type {values.dtype}. {_EXPECTED}.")


def _as_float32(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # a number beyond float32 becomes infinite, and is reported with its molecule
        return values.astype(np.float32)


def read_arrays(path: Path, option: str, expected: str) -> tuple[dict[str, np.ndarray], np.ndarray | None]:
    """Return the arrays of a .npz file by name, and the array `names`, which names columns, or None.

    Nothing in the file is executed. A file that cannot be read raises UserError, which names it by `option` and says what is `expected`.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        other = path.is_file() and not zipfile.is_zipfile(path)  # which NumPy takes for a pickle
        what = "is not a .npz file, or is damaged" if other else f"cannot be read: {error}"
        raise UserError(f"{option}={path} {what}. {expected}.") from error
    return arrays, arrays.pop("names", None)


def names_of_columns(names: np.ndarray | None, width: int, prefix: str, where: str) -> tuple[str, ...]:
    """Return the names of the columns of a matrix: those of the array `names`, by default the prefix and the column's number.

    Names that do not fit raise UserError, which says `where` they are.
    """
    if names is None:
        return tuple(f"{prefix}_{column}" for column in range(width))
    if names.ndim != 1 or len(names) != width or len({*names.tolist()}) < len(names):
        raise UserError(f"{where}: names has shape {list(names.shape)}; expected {width} different names.")
    return tuple(map(str, names.tolist()))
