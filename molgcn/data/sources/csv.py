"""dataset=csv: any CSV with columns of SMILES and numbers, or an SDF or list of SMILES."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from molgcn.data.cache import file_hash
from molgcn.data.config import DatasetConfig
from molgcn.data.formats import holds_records
from molgcn.data.sources.base import RawMolecules, Source
from molgcn.data.sources.columns import molecules_of, named_columns
from molgcn.data.sources.records import open_records
from molgcn.data.tables import check_columns, column_names, read_columns
from molgcn.errors import UserError, listed


def open_csv(config: DatasetConfig) -> Source:
    """Open the file `dataset.path`.

    It is a CSV with SMILES in the columns `dataset.smiles` and targets in the columns `dataset.targets`, or a file for
    :func:`open_records`.

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
    units = tuple(config.given("units").get(name, "") for name in config.targets)
    return open_table(path, config.smiles_columns, tuple(config.targets), units, config.features or "general", config)


def open_table(
    path: Path, smiles: Sequence[str], targets: tuple[str, ...], units: tuple[str, ...], features: str, config: DatasetConfig
) -> Source:
    """Open a CSV as a source.

    Args:
        path: the file.
        smiles: names of the columns of SMILES, one for each component of a row.
        targets: names of the T target columns.
        units: units of the T targets.
        features: name of the featuriser.
        config: configuration of the data set, which names the other columns.

    Raises:
        UserError: when the file or a column does not exist.
    """
    named = named_columns(targets, config)

    def read() -> RawMolecules:
        columns = read_columns(path, list(dict.fromkeys([*smiles, *chain(*named.values())])))
        components = [columns[name] for name in smiles]
        if len(components) == 1:
            return molecules_of(components[0], columns, targets, config)
        joined = [".".join(text.strip() for text in row) for row in zip(*components, strict=True)]
        return replace(molecules_of(joined, columns, targets, config), components=components)

    def column(name: str) -> Sequence[str]:
        return read_columns(path, [name], key="split_column")[name]

    check_columns(path, smiles=smiles, **named)
    return Source(
        title=str(path),
        features=features,
        target_names=targets,
        target_units=units,
        identity={"file": file_hash(path), "smiles": smiles[0] if len(smiles) == 1 else [*smiles]} | config.identity,
        read=read,
        column=column,
    )
