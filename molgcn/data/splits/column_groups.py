"""Groups of molecules by the values of a column."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from molgcn.data.tables import MISSING


def column_groups(cells: Sequence[str]) -> np.ndarray:
    """Return int64 [M], equal for molecules whose cells are equal but for blanks around them; a missing value is a group by itself."""
    number: dict[str, int] = {}
    keys = (text if (text := cell.strip()).lower() not in MISSING else f" {place}" for place, cell in enumerate(cells))
    return np.array([number.setdefault(key, len(number)) for key in keys], np.int64)
