"""Turns a split that names rows of the source into positions in a packed set."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np

from molgcn.data.splits.parts import Split, check_split, parts_of

log = logging.getLogger(__name__)


def rows_to_split(wanted: Mapping[str, np.ndarray], rows: np.ndarray, source: str) -> Split:
    """Return the positions in a packed set of the source rows that a split names. Rows that are not in the set are left out.

    Args:
        wanted: row numbers of the source for train, val, test and, where there is one, calibration.
        rows: int64 [M], the source row of each molecule.
        source: name of the split, for messages.

    Raises:
        UserError: when parts overlap or training is empty.
    """
    order = np.argsort(rows, kind="stable")
    split = {}
    for part in parts_of(wanted):
        asked = np.asarray(wanted[part], np.int64)
        at = np.searchsorted(rows, asked, sorter=order).clip(max=len(rows) - 1)
        positions = order[at]
        split[part] = positions[rows[positions] == asked]
    absent = sum(len(wanted[part]) - len(split[part]) for part in split)
    if absent:
        log.warning("The split from %s names %s rows that are not in the set (left out, or outside its subset)", source, f"{absent:,}")
    check_split(split, len(rows), source)
    return split
