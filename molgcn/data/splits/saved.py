"""Writes and reads the file in which a run saves its split."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from molgcn.data.splits.parts import CALIBRATION, PARTS, Split, parts_of
from molgcn.errors import UserError
from molgcn.files.whole_file import whole


def save_split(path: str | Path, split: Mapping[str, np.ndarray], rows: np.ndarray) -> None:
    """Write a split as JSON of source row numbers, which `split=file dataset.split_file=<path>` reads.

    Args:
        path: the file to write.
        split: positions in the set by part.
        rows: int64 [M], the source row of each molecule.
    """
    path = Path(path)
    text = json.dumps({part: rows[split[part]].tolist() for part in parts_of(split)})
    with whole(path) as temporary, open(temporary, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def load_split(path: str | Path) -> Split:
    """Read a split from a JSON file as :func:`save_split` writes it.

    Returns:
        Row numbers of the source, int64, for train, val, test and, if the file names it, calibration. Validation and test are empty if the
        file does not name them.

    Raises:
        UserError: when the file is missing or holds something else.
    """
    try:
        content = json.loads(Path(path).expanduser().read_text("utf-8"))
    except OSError as error:
        raise UserError(f"dataset.split_file={path} cannot be read: {error.strerror}. Give a JSON file.") from error
    except ValueError as error:
        raise UserError(f"dataset.split_file={path} is not JSON: {error}. {_FORMAT}") from error
    if not isinstance(content, dict) or "train" not in content or content.keys() - {*PARTS, CALIBRATION}:
        raise UserError(f"dataset.split_file={path} does not name train, val, test and perhaps calibration alone. {_FORMAT}")
    try:
        split = {part: np.array(content.get(part, [])) for part in parts_of(content)}
    except (TypeError, ValueError) as error:
        raise UserError(f"dataset.split_file={path}: a part is not a list of whole numbers. {_FORMAT}") from error
    for part, rows in split.items():
        if rows.ndim != 1 or (len(rows) and rows.dtype.kind not in "iu"):
            raise UserError(f"dataset.split_file={path}: '{part}' is not a list of whole numbers. {_FORMAT}")
    return {part: rows.astype(np.int64) for part, rows in split.items()}


_FORMAT = 'Expected {"train": [rows], "val": [rows], "test": [rows]}, rows of the data file counted from 0; val or test may be left out.'
