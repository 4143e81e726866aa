"""The file that a run saves its split in."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from molgcn.data.splits.parts import PARTS, Split
from molgcn.errors import UserError
from molgcn.whole_file import whole


def save_split(path: str | Path, split: Mapping[str, np.ndarray], rows: np.ndarray) -> None:
    """Writes a split as JSON of source row numbers, readable by `split=file dataset.split_file=<path>`."""
    path = Path(path)
    text = json.dumps({part: rows[split[part]].tolist() for part in PARTS})
    with whole(path) as temporary, open(temporary, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def load_split(path: str | Path) -> Split:
    """Row numbers of the source for train, val and test, from a JSON file as :func:`save_split` writes it.

    Raises:
        UserError: when the file is missing or holds something else.
    """
    try:
        content = json.loads(Path(path).expanduser().read_text("utf-8"))
    except OSError as error:
        raise UserError(f"dataset.split_file={path} cannot be read: {error.strerror}. Give a JSON file.") from error
    except ValueError as error:
        raise UserError(f"dataset.split_file={path} is not JSON: {error}. {_FORMAT}") from error
    try:
        split = {part: np.array(content[part]) for part in PARTS}
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise UserError(f"dataset.split_file={path} does not name train, val and test. {_FORMAT}") from error
    for part, rows in split.items():
        if rows.ndim != 1 or (len(rows) and rows.dtype.kind not in "iu"):
            raise UserError(f"dataset.split_file={path}: '{part}' is not a list of whole numbers. {_FORMAT}")
    return {part: rows.astype(np.int64) for part, rows in split.items()}


_FORMAT = 'Expected {"train": [rows], "val": [rows], "test": [rows]}, rows of the data file counted from 0.'
