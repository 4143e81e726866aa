"""Reads descriptors that come with a data set, in its columns or in a file of their own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from molgcn.data.config import DatasetConfig
from molgcn.data.descriptors.attach import unusable
from molgcn.data.descriptors.file import read_descriptors
from molgcn.data.skipped_row import SkippedRow
from molgcn.data.sources.base import RawMolecules
from molgcn.errors import UserError, row_of


def with_given(raw: RawMolecules, config: DatasetConfig, title: str) -> tuple[RawMolecules, tuple[str, ...]]:
    """Return the rows of a source with all descriptors that are given for them, and the names of the descriptors.

    The descriptors of columns come before those of the file. With `dataset.on_error=skip`, rows whose descriptors are missing or not
    finite are left out.

    Args:
        raw: all rows of a source, with the descriptors of its columns.
        config: configuration of the data set.
        title: name of the source, for messages.

    Raises:
        UserError: when the source has no columns, the file has another number of rows, or a row cannot be used.
    """
    names = tuple(config.descriptors or ())
    if names and raw.descriptors is None:
        raise UserError(f"dataset.descriptors={list(names)} names columns, which {title} does not have. Use dataset=csv with a table.")
    if config.descriptors_path is not None:
        more, values = read_descriptors(Path(config.descriptors_path).expanduser())
        if len(values) != raw.num_rows:
            raise UserError(
                f"dataset.descriptors_path={config.descriptors_path} has {len(values):,} rows, but {title} has {raw.num_rows:,}. Give "
                "a row of descriptors for each row of the data, also for those that are left out."
            )
        values = values[raw.rows]
        raw = replace(raw, descriptors=values if raw.descriptors is None else np.concatenate([raw.descriptors, values], axis=1))
        names += more
    if raw.descriptors is None:
        return raw, names
    reasons = unusable(raw.descriptors, names)
    for place, reason in reasons.items() if config.on_error == "raise" else ():
        raise UserError(
            f"{row_of(title, int(raw.rows[place]), raw.kind)}: {reason}. Give a finite number, or leave such rows out "
            "with dataset.on_error=skip, which counts and lists them."
        )
    if len(reasons) == len(raw.items):
        raise UserError(f"No row of {title} has all descriptors: in the first, {next(iter(reasons.values()))}.")
    skipped = [SkippedRow(int(raw.rows[place]), raw.items[place] if raw.kind == "smiles" else "", why) for place, why in reasons.items()]
    kept = np.setdiff1d(np.arange(len(raw.items)), list(reasons))
    return replace(raw.take(kept), left_out=[*raw.left_out, *skipped]), names
