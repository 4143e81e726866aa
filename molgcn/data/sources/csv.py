"""dataset=csv: a CSV with columns of SMILES and numbers, an SDF whose targets are properties, or a list of SMILES and numbers (.smi)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from pathlib import Path

import numpy as np

from molgcn.data.cache import file_hash
from molgcn.data.config import DatasetConfig
from molgcn.data.featurize import Kind
from molgcn.data.formats import Molecules, holds_records, open_molecules
from molgcn.data.reaction_smiles import joined
from molgcn.data.sources.base import RawMolecules, Source
from molgcn.data.sources.target_columns import default_targets, read_targets, read_weights
from molgcn.data.strings import PackedStrings
from molgcn.data.tables import Columns, check_columns, column_names, read_columns
from molgcn.errors import UserError, nearest, shown


class _Table:
    """A table with a column of SMILES for each component of a row."""

    kind: Kind = "smiles"

    def __init__(self, path: Path, config: DatasetConfig) -> None:
        self.path, self.smiles, self.header = path, config.smiles_columns, config.header
        self.identity = {"smiles": self.smiles[0] if len(self.smiles) == 1 else self.smiles} | ({} if self.header else {"header": False})

    def names(self) -> list[str]:
        self.check({})
        return list(dict.fromkeys(column_names(self.path, self.header)))

    def check(self, named: Mapping[str, Sequence[str]]) -> None:
        check_columns(self.path, self.header, smiles=self.smiles, **named)

    def columns(self, names: Sequence[str], key: str = "targets") -> Columns:
        return read_columns(self.path, names, key, self.header)

    def read(self, names: Sequence[str]) -> tuple[Sequence[str], Sequence[PackedStrings], Columns]:
        columns = self.columns(list(dict.fromkeys([*self.smiles, *names])))
        components = [columns[name] for name in self.smiles]
        if len(components) == 1:
            return components[0], (), columns
        return [joined(row) for row in zip(*components, strict=True)], components, columns


class _Records:
    """An SDF or list of SMILES. A property that a record does not have is a missing value."""

    def __init__(self, path: Path, config: DatasetConfig) -> None:
        if len(config.smiles_columns) > 1:
            raise UserError(
                f"dataset.smiles={config.smiles} names several columns of a table; a record of {path} is one molecule. Use a CSV."
            )
        self.path = path
        with self._open() as molecules:
            self.kind: Kind = molecules.kind
            self._names = molecules.columns[2 if molecules.kind == "sdf" else 1 :]  # without SMILES and an SDF's titles
        self.identity = {"records": self.kind}

    def _open(self) -> AbstractContextManager[Molecules]:
        return open_molecules(self.path, "auto", ["smiles"], option="dataset.path")

    def names(self) -> list[str]:
        return self._names

    def check(self, named: Mapping[str, Sequence[str]]) -> None:
        one, several = ("property", "properties") if self.kind == "sdf" else ("column", "columns")
        for key, wanted in named.items():
            for name in wanted:
                if name not in self._names:
                    hint = nearest(name, self._names) if self._names else f" It has no {several}."
                    raise UserError(f"{self.path} has no {one} '{shown(name)}' (dataset.{key}).{hint}")

    def columns(self, names: Sequence[str], key: str = "targets") -> Columns:
        self.check({key: names})
        return self.read(names)[2]

    def read(self, names: Sequence[str]) -> tuple[Sequence[str], Sequence[PackedStrings], Columns]:
        items: list[str] = []
        cells: list[list[str]] = [[] for _ in names]
        with self._open() as molecules:
            places = [molecules.columns.index(name) for name in names]
            for record in molecules.records:
                items.append(record.molecule)
                for column, place in zip(cells, places, strict=True):
                    column.append(record.cells[place])
        if not items:
            raise UserError(f"{self.path} has no molecules. Expected at least one.")
        text = {name: PackedStrings.from_strings(column) for name, column in zip(names, cells, strict=True)}
        return items, (), Columns(self.path, False, text, self.kind)


def open_csv(config: DatasetConfig) -> Source:
    """Open the file `dataset.path`: a table with columns of SMILES and targets, an SDF, or a list of SMILES and numbers."""
    if config.path is None:
        raise UserError("dataset=csv needs a file: dataset.path=<file.csv> dataset.smiles=<column> dataset.targets=[<column>].")
    path = Path(config.path).expanduser()
    file = (_Records if holds_records(path) else _Table)(path, config)
    targets = tuple(config.targets or ())
    if not targets and not config.levels:
        names = file.names()
        targets = tuple(default_targets(path, names, config, lambda: file.columns(names)))
    lists = [*(config.atom_targets or ()), *(config.bond_targets or ())]
    named: dict[str, Sequence[str]] = {
        "targets": targets,
        "descriptors": config.descriptors or (),
        "weights": [config.weights] if config.weights else (),
        "atom_targets": config.atom_targets or (),
        "bond_targets": config.bond_targets or (),
    }
    file.check(named)

    def read() -> RawMolecules:
        items, components, columns = file.read(list(dict.fromkeys(chain(*named.values()))))
        values, bounds = read_targets(columns, targets, config) if targets else (np.zeros((len(items), 0)), None)
        return RawMolecules(
            items,
            np.arange(len(items)),
            values,
            file.kind,
            bounds=bounds,
            weights=read_weights(columns, config.weights) if config.weights else None,
            descriptors=np.stack([columns.numbers(name) for name in config.descriptors], axis=1) if config.descriptors else None,
            components=components,
            lists={name: columns[name] for name in lists},
        )

    return Source(
        title=str(path),
        features=config.features or "general",
        target_names=targets,
        target_units=tuple(config.given("units").get(name, "") for name in targets),
        identity={"file": file_hash(path), **file.identity, **config.identity},
        read=read,
        column=lambda name: file.columns([name], "split_column")[name],
    )
