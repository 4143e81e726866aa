"""Reads descriptors that come with a data set, in its columns or in a .npz file of their own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from molgcn.data.descriptors.attach import unusable
from molgcn.data.row_matrices import names_of_columns, read_arrays
from molgcn.data.rows import SkippedRow, named_row
from molgcn.errors import UserError, counted, first_of

if TYPE_CHECKING:
    from molgcn.data.config import DatasetConfig
    from molgcn.data.sources.base import RawMolecules


def with_given(raw: RawMolecules, config: DatasetConfig, title: str) -> tuple[RawMolecules, tuple[str, ...]]:
    """Return the rows of a source with all descriptors that are given for them, and the names of the descriptors.

    The descriptors of columns come before those of the file. With `dataset.on_error=skip`, rows whose descriptors are missing or not finite
    are left out.
    """
    names = tuple(config.descriptors or ())
    if names and raw.descriptors is None:
        raise UserError(f"dataset.descriptors={list(names)} names columns, which {title} does not have. Use dataset=csv with a table.")
    if config.descriptors_path is not None:
        more, values = read_descriptors(Path(config.descriptors_path).expanduser())
        if len(values) != raw.num_rows:
            raise UserError(
                f"dataset.descriptors_path={config.descriptors_path} has {counted(len(values), 'row')}, but {title} has {raw.num_rows:,}. "
                "Give a row of descriptors for each row of the data, also for those that are left out."
            )
        values = values[raw.rows]
        raw = replace(raw, descriptors=values if raw.descriptors is None else np.concatenate([raw.descriptors, values], axis=1))
        names += more
    if raw.descriptors is None:
        return raw, names
    reasons = unusable(raw.descriptors, names)
    for place, reason in reasons.items() if config.on_error == "raise" else ():
        raise UserError(
            f"{named_row(title, raw.files, int(raw.rows[place]), raw.kind)}: {reason}. {first_of(len(reasons), len(raw.items))} Give a "
            "finite number, or leave such rows out with dataset.on_error=skip, which counts and lists them."
        )
    if len(reasons) == len(raw.items):
        raise UserError(f"No row of {title} has all descriptors: in the first, {next(iter(reasons.values()))}.")
    skipped = [SkippedRow(int(raw.rows[place]), raw.items[place] if raw.kind == "smiles" else "", why) for place, why in reasons.items()]
    kept = np.setdiff1d(np.arange(len(raw.items)), list(reasons))
    return replace(raw.take(kept), left_out=[*raw.left_out, *skipped]), names


def read_descriptors(path: Path, option: str = "dataset.descriptors_path") -> tuple[tuple[str, ...], np.ndarray]:
    """Read the single matrix of a .npz file, and the names of its columns from the array `names` if there is one.

    Returns:
        The K names and the matrix, float [rows, K]. Default names are the array's name and the column's number, such as x_0.

    Raises:
        UserError: when the file cannot be read, does not hold one matrix of numbers, or names its columns wrongly.
    """
    expected = "Expected a .npz file with one matrix of numbers, a row for each molecule, as numpy.savez(path, x=matrix) writes it"
    arrays, names = read_arrays(path, option, expected)
    if len(arrays) != 1:
        raise UserError(
            f"{option}={path} has {len(arrays)} arrays ({', '.join(arrays) or 'none'}). {expected}; `names` may name its columns."
        )
    ((array_name, values),) = arrays.items()
    if values.ndim != 2 or values.dtype.kind not in "fiub" or values.shape[1] == 0:
        raise UserError(f"{option}={path}: {array_name} has shape {list(values.shape)} and type {values.dtype}. {expected}.")
    if values.dtype not in (np.float32, np.float64):
        values = values.astype(np.float32)
    return names_of_columns(names, values.shape[1], array_name, f"{option}={path}"), values
