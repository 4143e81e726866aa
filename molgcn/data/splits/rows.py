"""Turns a split that names rows of the source into positions in a packed set."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np

from molgcn.data.packed import PackedMolecules
from molgcn.data.splits.parts import Split, check_split, parts_of
from molgcn.errors import UserError, counted

log = logging.getLogger(__name__)


def rows_to_split(wanted: Mapping[str, np.ndarray], molecules: PackedMolecules, split: str, title: str) -> Split:
    """Return the positions in a packed set of the source rows that a split names.

    Rows that the set does not have are left out, and a warning says how many of them were skipped as unreadable.

    Args:
        wanted: row numbers of the source for train, val, test and, where there is one, calibration.
        molecules: the set.
        split: name of the split, for messages.
        title: name of the set's source, for messages.

    Raises:
        UserError: when a row is beyond the source's last one, parts overlap or training is empty.
    """
    found, absent = {}, []
    order = np.argsort(molecules.rows, kind="stable")
    num_rows = int(molecules.rows.max()) + 1 if molecules.num_rows is None else molecules.num_rows
    for part in parts_of(wanted):
        asked = np.asarray(wanted[part], np.int64)
        beyond = asked[(asked < 0) | (asked >= num_rows)]
        if len(beyond):
            raise UserError(
                f"The split from {split} names {counted(len(beyond), 'row')} beyond {title}, such as row {beyond[0]} in {part}: "
                f"it has {num_rows:,} rows, counted from 0 without a header. Give the split of this file, or correct the rows."
            )
        at = np.searchsorted(molecules.rows, asked, sorter=order).clip(max=len(molecules) - 1)
        there = molecules.rows[order[at]] == asked
        found[part] = order[at][there]
        absent.append(asked[~there])
    _warn_of_absent(np.concatenate(absent), molecules, split)
    check_split(found, molecules.rows, split)
    return found


def _warn_of_absent(absent: np.ndarray, molecules: PackedMolecules, split: str) -> None:
    if not len(absent):
        return
    skipped = int(np.isin(absent, [row.row for row in molecules.skipped]).sum())
    reasons = [
        f"{skipped:,} were left out as unreadable or unusable" if skipped else "",
        f"{len(absent) - skipped:,} are outside dataset.subset or were merged into an equal molecule" if skipped < len(absent) else "",
    ]
    log.warning(
        "The split from %s names %s that are not in the set: %s",
        *(split, counted(len(absent), "row"), ", ".join(filter(None, reasons))),
    )
