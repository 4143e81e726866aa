"""A split by a column that names the parts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from molgcn.data.splits.parts import PARTS, Split, check_split
from molgcn.errors import UserError, shown

_SPELLINGS = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}


def column_split(values: Sequence[object], column: str = "split", rows: Sequence[int] | np.ndarray | None = None) -> Split:
    """Splits by a column that says train, val (valid, validation) or test; an empty cell leaves the molecule out.

    Args:
        values: the column's cells, one a row of the source.
        column: its name, for messages.
        rows: int [M], the source row of each molecule, where rows were skipped; by default every row is a molecule.

    Raises:
        UserError: for another value, or when training is empty.
    """
    names = []
    for row in range(len(values)) if rows is None else rows:
        value = values[row]
        text = "" if value is None or value != value else str(value).strip().lower()
        if text and text not in _SPELLINGS:
            raise UserError(
                f"Column '{column}', row {row} (counted from 0, without the header) says '{shown(str(value))}'; expected train, val "
                "(or valid, validation), test or an empty cell."
            )
        names.append(_SPELLINGS.get(text, ""))
    split = {part: np.flatnonzero(np.array(names) == part) for part in PARTS}
    check_split(split, len(names), f"column '{column}'")
    return split
