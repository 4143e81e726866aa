"""dataset=csv: a CSV with columns of SMILES and numbers, an SDF whose targets are properties, or a list of SMILES and numbers (.smi)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np

from molgcn.data.cache import file_hash
from molgcn.data.config import DatasetConfig
from molgcn.data.featurize import Kind
from molgcn.data.formats import Molecules, holds_records, open_molecules
from molgcn.data.reaction_smiles import joined
from molgcn.data.sources.base import RawMolecules, Source
from molgcn.data.sources.default_targets import default_targets
from molgcn.data.strings import PackedStrings
from molgcn.data.tables import Columns, check_columns, column_names, is_missing, read_columns
from molgcn.data.target_config import TargetConfig
from molgcn.errors import UserError, counted, first_of, nearest, shown

_BOUND = re.compile(r"\s*([<>\u2264\u2265])=?\s*(.*)", re.DOTALL)


def open_csv(config: DatasetConfig) -> Source:
    """Open the file `dataset.path`.

    It is a CSV with SMILES in the columns `dataset.smiles` and targets in the columns `dataset.targets`, or a file for
    :func:`open_records`.
    """
    if config.path is None:
        raise UserError("dataset=csv needs a file: dataset.path=<file.csv> dataset.smiles=<column> dataset.targets=[<column>].")
    path = Path(config.path).expanduser()
    if holds_records(path):
        return open_records(path, config)
    targets = tuple(config.targets or (() if config.levels else _targets_of_table(path, config)))
    units = tuple(config.given("units").get(name, "") for name in targets)
    return open_table(path, config.smiles_columns, targets, units, config.features or "general", config)


def _targets_of_table(path: Path, config: DatasetConfig) -> list[str]:
    check_columns(path, config.header, smiles=config.smiles_columns)
    names = list(dict.fromkeys(column_names(path, config.header)))

    def read() -> Columns:
        return read_columns(path, names, has_header=config.header)

    return default_targets(path, file_hash(path), names, config, read, partial(_numbers_of, given=config))


def _numbers_of(columns: Columns, name: str, given: TargetConfig) -> np.ndarray:
    return read_targets(columns, [name], given)[0][:, 0]


def open_table(
    path: Path, smiles: Sequence[str], targets: tuple[str, ...], units: tuple[str, ...], features: str, config: DatasetConfig
) -> Source:
    """Open a CSV as a source. It has a column of SMILES for each component of a row."""
    named = named_columns(targets, config)

    def read() -> RawMolecules:
        columns = read_columns(path, list(dict.fromkeys([*smiles, *chain(*named.values())])), has_header=config.header)
        components = [columns[name] for name in smiles]
        if len(components) == 1:
            return molecules_of(components[0], columns, targets, config)
        rows = [joined(row) for row in zip(*components, strict=True)]
        return replace(molecules_of(rows, columns, targets, config), components=components)

    def column(name: str) -> Sequence[str]:
        return read_columns(path, [name], key="split_column", has_header=config.header)[name]

    check_columns(path, config.header, smiles=smiles, **named)
    return Source(
        title=str(path),
        features=features,
        target_names=targets,
        target_units=units,
        identity={"file": file_hash(path), "smiles": smiles[0] if len(smiles) == 1 else [*smiles]}
        | ({} if config.header else {"header": False})
        | config.identity,
        read=read,
        column=column,
    )


def named_columns(targets: Sequence[str], config: DatasetConfig) -> Mapping[str, Sequence[str]]:
    """Return the names of the columns to read, by the keys of `dataset` that name them."""
    named = {"targets": targets, "descriptors": config.descriptors or (), "weights": [config.weights] if config.weights else ()}
    return named | {"atom_targets": config.atom_targets or (), "bond_targets": config.bond_targets or ()}


def molecules_of(
    items: Sequence[str], columns: Columns, targets: Sequence[str], config: DatasetConfig, kind: Kind = "smiles"
) -> RawMolecules:
    """Return M molecules with the targets, weights and descriptors in their columns."""
    values, bounds = read_targets(columns, targets, config) if targets else (np.zeros((len(items), 0)), None)
    weights = read_weights(columns, config.weights) if config.weights else None
    given = np.stack([columns.numbers(name) for name in config.descriptors], axis=1) if config.descriptors else None
    lists = {name: columns[name] for name in (*(config.atom_targets or ()), *(config.bond_targets or ()))}
    return RawMolecules(items, np.arange(len(items)), values, kind, bounds=bounds, weights=weights, descriptors=given, lists=lists)


def open_records(path: Path, config: DatasetConfig) -> Source:
    """Open an SDF or list of SMILES as a source. A property that a record does not have is a missing value."""
    if len(config.smiles_columns) > 1:
        raise UserError(f"dataset.smiles={config.smiles} names several columns of a table; a record of {path} is one molecule. Use a CSV.")
    with _open(path) as molecules:
        kind, names = molecules.kind, molecules.columns[2 if molecules.kind == "sdf" else 1 :]  # without SMILES and an SDF's titles
    one, several = ("property", "properties") if kind == "sdf" else ("column", "columns")
    read_all = partial(_columns_of, path, names)
    targets = tuple(config.targets or ())
    if not targets and not config.levels:
        targets = tuple(default_targets(path, file_hash(path), names, config, read_all, partial(_numbers_of, given=config)))
    named = named_columns(targets, config)
    for key, wanted in named.items():
        for name in wanted:
            if name not in names:
                hint = nearest(name, names) if names else f" It has no {several}."
                raise UserError(f"{path} has no {one} '{shown(name)}' (dataset.{key}).{hint}")

    def read() -> RawMolecules:
        items, columns = _read(path, list(dict.fromkeys(chain(*named.values()))))
        return molecules_of(items, columns, targets, config, kind)

    def column(name: str) -> Sequence[str]:
        if name not in names:
            raise UserError(f"{path} has no {one} '{shown(name)}' (dataset.split_column).{nearest(name, names)}")
        return _read(path, [name])[1][name]

    return Source(
        title=str(path),
        features=config.features or "general",
        target_names=targets,
        target_units=tuple(config.given("units").get(name, "") for name in targets),
        identity={"file": file_hash(path), "records": kind} | config.identity,
        read=read,
        column=column,
    )


def _columns_of(path: Path, names: Sequence[str]) -> Columns:
    return _read(path, names)[1]


def _open(path: Path) -> AbstractContextManager[Molecules]:
    return open_molecules(path, "auto", ["smiles"], option="dataset.path")


def _read(path: Path, names: Sequence[str]) -> tuple[list[str], Columns]:
    """Read the molecules and the text of the named columns."""
    items: list[str] = []
    cells: list[list[str]] = [[] for _ in names]
    with _open(path) as molecules:
        places = [molecules.columns.index(name) for name in names]
        for record in molecules.records:
            items.append(record.molecule)
            for column, place in zip(cells, places, strict=True):
                column.append(record.cells[place])
    if not items:
        raise UserError(f"{path} has no molecules. Expected at least one.")
    text = {name: PackedStrings.from_strings(column) for name, column in zip(names, cells, strict=True)}
    return items, Columns(path, False, text, molecules.kind)


def read_targets(columns: Columns, names: Sequence[str], given: TargetConfig) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the values of target columns, and which of them are bounds.

    Returns:
        - values: float64 [M, T], NaN where missing.
        - bounds: float32 [M, T], -1 where the true value is below its target, 1 where it is above, else 0. None without `given.bounded`
          or where no cell is a bound.

    Raises:
        UserError: when a cell is neither a number nor a class, naming its column and row, or when every cell of a column is missing.
    """
    labels, values = given.given("labels"), []
    bounds = np.zeros((len(columns[names[0]]), len(names)), np.float32)
    for place, name in enumerate(names):
        if name in labels:
            values.append(_classes(columns, name, labels[name]))
        elif given.bounded:
            cells = [_BOUND.fullmatch(text) for text in columns[name]]
            bounds[:, place] = [0 if cell is None else -1 if cell[1] in "<\u2264" else 1 for cell in cells]
            texts = [text if cell is None else cell[2] for text, cell in zip(columns[name], cells, strict=True)]
            values.append(columns.numbers(name, texts))
        else:
            values.append(columns.numbers(name))
    found = np.stack(values, axis=1)
    bounds[np.isnan(found)] = 0
    return found, bounds if bounds.any() else None


def read_weights(columns: Columns, name: str) -> np.ndarray:
    """Return the weight of each row, float64 [M]."""
    weights = columns.numbers(name)
    wrong = np.flatnonzero(~(weights >= 0))
    if len(wrong):
        place = f"{columns.path}, column '{shown(name)}', row {wrong[0]} (counted from 0, without the header)"
        raise UserError(
            f"{place}: '{shown(columns[name][wrong[0]])}' is not a weight. Expected a number of at least 0; 0 leaves the molecule out of "
            f"the loss. {first_of(len(wrong), len(weights), 'cell')}"
        )
    return weights


def _classes(columns: Columns, name: str, classes: Mapping[str, int | None]) -> np.ndarray:
    """Return the class of each row of a column, float64 [M], NaN where missing: an empty cell, or a word that `dataset.labels` says."""
    result = np.full(len(columns[name]), np.nan)
    numbers = {text: np.nan if number is None else number for text, number in classes.items()}
    folded = {text.casefold(): number for text, number in numbers.items()}
    wrong: list[int] = []
    for row, text in enumerate(columns[name]):
        cell = text.strip()
        number = numbers.get(cell, folded.get(cell.casefold()))
        if number is not None:
            result[row] = number
        elif not is_missing(cell, of_numbers=False):
            wrong.append(row)
    if wrong:
        cell = columns[name][wrong[0]].strip()
        missing = f" Where {shown(cell)} is a missing value, say null for it." if is_missing(cell, of_numbers=True) else ""
        raise UserError(
            f"{columns.path}, column '{shown(name)}', row {wrong[0]} (counted from 0, without the header): dataset.labels has no class for "
            f"'{shown(cell)}', only for {', '.join(map(shown, classes))}. {first_of(len(wrong), len(result), 'cell')} Add it, correct it, "
            f"or leave the cell empty if missing.{missing}"
        )
    if np.isnan(result).all():
        raise UserError(f"{columns.path}: all {counted(len(result), 'value')} of column '{shown(name)}' are missing. Name another target.")
    return result
