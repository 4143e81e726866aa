"""Groups of molecules by the values of a column."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from molgcn.data.tables import is_missing
from molgcn.errors import shown

log = logging.getLogger(__name__)


def column_groups(cells: Sequence[str], column: str) -> np.ndarray:
    """Return the group of each molecule by its cell, int64 [M]. Blanks around a text do not count.

    A molecule whose cell is empty is a group of its own, and a warning says how many there are.

    Args:
        cells: the text of each molecule's cell.
        column: name of the column, for the message.
    """
    number: dict[str, int] = {}
    missing = [is_missing(cell, of_numbers=False) for cell in cells]
    keys = (f" {place}" if alone else cell.strip() for place, (cell, alone) in enumerate(zip(cells, missing, strict=True)))
    groups = np.array([number.setdefault(key, len(number)) for key in keys], np.int64)
    if any(missing):
        log.warning(
            "Column '%s' is empty for %s of %s molecules, each of which is a group of its own",
            *(shown(column), f"{sum(missing):,}", f"{len(cells):,}"),
        )
    return groups
