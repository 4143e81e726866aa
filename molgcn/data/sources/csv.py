"""dataset=csv: any CSV with a column of SMILES and columns of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from molgcn.data.cache import file_hash
from molgcn.data.config import DatasetConfig
from molgcn.data.sources.base import RawMolecules, Source
from molgcn.data.tables import check_columns, column_names, read_columns
from molgcn.data.target_columns import read_targets, read_weights
from molgcn.data.target_config import TargetConfig
from molgcn.errors import UserError, listed


def open_csv(config: DatasetConfig) -> Source:
    """The CSV file `dataset.path` with SMILES in column `dataset.smiles` and the columns `dataset.targets`.

    Raises:
        UserError: when path or targets are not set, or the file or a column does not exist.
    """
    if config.path is None:
        raise UserError("dataset=csv needs a file: dataset.path=<file.csv> dataset.smiles=<column> dataset.targets=[<column>].")
    path = Path(config.path).expanduser()
    if config.targets is None:
        others = [name for name in column_names(path) if name != config.smiles]
        raise UserError(f"dataset=csv needs dataset.targets=[<column>,...]. {path} has the columns: {listed(others)}.")
    units = tuple(config.given("units").get(name, "") for name in config.targets)
    return open_table(path, config.smiles, tuple(config.targets), units, config.features or "general", config)


def open_table(path: Path, smiles: str, targets: tuple[str, ...], units: tuple[str, ...], features: str, given: TargetConfig) -> Source:
    """A CSV of SMILES and columns of targets as a source; `given` says what these hold."""

    def read() -> RawMolecules:
        columns = read_columns(path, list(dict.fromkeys([smiles, *targets, *weights])))
        values, bounds = read_targets(columns, targets, given)
        of_molecules = read_weights(columns, given.weights) if given.weights else None
        return RawMolecules(columns[smiles], np.arange(len(values)), values, bounds=bounds, weights=of_molecules)

    def column(name: str) -> Sequence[str]:
        return read_columns(path, [name], key="split_column")[name]

    weights = [given.weights] if given.weights else []
    check_columns(path, smiles=[smiles], targets=targets, weights=weights)
    return Source(
        title=str(path),
        features=features,
        target_names=targets,
        target_units=units,
        identity={"file": file_hash(path), "smiles": smiles} | given.identity,
        read=read,
        column=column,
    )
