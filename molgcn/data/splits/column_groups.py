"""Groups of molecules by the values of a column."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from molgcn.data.tables import MISSING


def column_groups(cells: Sequence[str]) -> np.ndarray:
    """Return the group of each molecule by its cell, int64 [M]. Blanks around a text do not count. A missing value is its own group."""
    number: dict[str, int] = {}
    keys = (text if (text := cell.strip()).lower() not in MISSING else f" {place}" for place, cell in enumerate(cells))
    return np.array([number.setdefault(key, len(number)) for key in keys], np.int64)
