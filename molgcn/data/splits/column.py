"""A split by a column that names the parts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from molgcn.data.splits.parts import PARTS, Split, check_split
from molgcn.errors import UserError, shown

_SPELLINGS = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}


def column_split(values: Sequence[object], column: str = "split", rows: Sequence[int] | np.ndarray | None = None) -> Split:
    """Split by a column that says train, val (valid, validation) or test. An empty cell leaves the molecule out.

    Args:
        values: the cells of the column, one for each row of the source.
        column: name of the column, for messages.
        rows: int [M], the source row of each molecule. Default: every row is a molecule.

    Returns:
        Sorted int64 positions for "train", "val" and "test".

    Raises:
        UserError: when a cell has another value, or training is empty.
    """
    names = []
    for row in range(len(values)) if rows is None else rows:
        value = values[row]
        text = "" if value is None or value != value else str(value).strip().lower()
        if text and text not in _SPELLINGS:
            raise UserError(
                f"Column '{column}', row {row} (counted from 0, without the header) says '{shown(str(value))}'; expected train, val "
                "(or valid, validation), test or an empty cell. Correct it, or name another column with dataset.split_column=."
            )
        names.append(_SPELLINGS.get(text, ""))
    split = {part: np.flatnonzero(np.array(names) == part) for part in PARTS}
    check_split(split, np.arange(len(names)), f"column '{column}'")
    return split
