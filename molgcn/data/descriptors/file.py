"""Reads descriptors from a .npz file, one row for each row of the data set's file."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from molgcn.errors import UserError


def read_descriptors(path: Path, option: str = "dataset.descriptors_path") -> tuple[tuple[str, ...], np.ndarray]:
    """Read the single matrix of a .npz file, and the names of its columns from the array `names` if there is one.

    Args:
        path: the file.
        option: key of the configuration that named the file, for messages.

    Returns:
        The K names and the matrix, float [rows, K]. Default names are the array's name and the column's number, such as x_0.

    Raises:
        UserError: when the file cannot be read, does not hold one matrix of numbers, or names its columns wrongly.
    """
    expected = "Expected a .npz file with one matrix of numbers, a row for each molecule, as numpy.savez(path, x=matrix) writes it"
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise UserError(f"{option}={path} cannot be read: {error}. {expected}.") from error
    names = arrays.pop("names", None)
    if len(arrays) != 1:
        raise UserError(
            f"{option}={path} has {len(arrays)} arrays ({', '.join(arrays) or 'none'}). {expected}; `names` may name its columns."
        )
    ((array_name, values),) = arrays.items()
    if values.ndim != 2 or values.dtype.kind not in "fiub" or values.shape[1] == 0:
        raise UserError(f"{option}={path}: {array_name} has shape {list(values.shape)} and type {values.dtype}. {expected}.")
    if values.dtype not in (np.float32, np.float64):
        values = values.astype(np.float32)
    if names is None:
        return tuple(f"{array_name}_{column}" for column in range(values.shape[1])), values
    if names.ndim != 1 or len(names) != values.shape[1] or len({*names.tolist()}) < len(names):
        raise UserError(f"{option}={path}: names has shape {list(names.shape)}; expected {values.shape[1]} different names.")
    return tuple(map(str, names.tolist())), values
