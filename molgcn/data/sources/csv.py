"""dataset=csv: any CSV with a column of SMILES and columns of numbers; or an SDF or list of SMILES of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from molgcn.data.cache import file_hash
from molgcn.data.config import DatasetConfig, listed
from molgcn.data.formats import holds_records
from molgcn.data.sources.base import RawMolecules, Source
from molgcn.data.sources.records import open_records
from molgcn.data.tables import check_columns, column_names, read_columns
from molgcn.errors import UserError


def open_csv(config: DatasetConfig) -> Source:
    """The file `dataset.path`: a CSV with SMILES in column `dataset.smiles` and the columns `dataset.targets`, or what :func:`open_records`
    reads.

    Raises:
        UserError: when path or targets are not set, or the file or a column does not exist.
    """
    if config.path is None:
        raise UserError("dataset=csv needs a file: dataset.path=<file.csv> dataset.smiles=<column> dataset.targets=[<column>].")
    path = Path(config.path).expanduser()
    if holds_records(path):
        return open_records(path, config)
    if config.targets is None:
        others = [name for name in column_names(path) if name not in config.smiles_columns]
        raise UserError(f"dataset=csv needs dataset.targets=[<column>,...]. {path} has the columns: {listed(others)}.")
    units, features = ("",) * len(config.targets), config.features or "general"
    return open_table(path, config.smiles_columns, tuple(config.targets), units, features, tuple(config.descriptors or ()))


def open_table(
    path: Path, smiles: Sequence[str], targets: tuple[str, ...], units: tuple[str, ...], features: str, descriptors: tuple[str, ...] = ()
) -> Source:
    """A CSV of columns of SMILES, one for each molecule of a row, and of numbers as a source."""

    def read() -> RawMolecules:
        columns = read_columns(path, [*smiles, *targets, *descriptors])
        values, given = (np.stack([columns.numbers(name) for name in names], axis=1) if names else None for names in (targets, descriptors))
        items, components = columns[smiles[0]], [columns[name] for name in smiles]
        raw = RawMolecules(items, np.arange(len(items)), values, descriptors=given)
        joined = [".".join(text.strip() for text in row) for row in zip(*components, strict=True)]
        return raw if len(smiles) == 1 else replace(raw, items=joined, components=components)

    def column(name: str) -> Sequence[str]:
        return read_columns(path, [name], key="split_column")[name]

    check_columns(path, smiles=smiles, targets=targets, descriptors=descriptors)
    return Source(
        title=str(path),
        features=features,
        target_names=targets,
        target_units=units,
        identity={"file": file_hash(path), "smiles": smiles[0] if len(smiles) == 1 else [*smiles]},
        read=read,
        column=column,
    )
