"""dataset=csv for an SDF, whose targets are properties of its records, or for a list of SMILES and numbers (.smi)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import chain
from pathlib import Path

from molgcn.data.cache import file_hash
from molgcn.data.config import DatasetConfig
from molgcn.data.formats import Molecules, open_molecules
from molgcn.data.sources.base import RawMolecules, Source
from molgcn.data.sources.columns import molecules_of, named_columns
from molgcn.data.strings import PackedStrings
from molgcn.data.tables import Columns
from molgcn.errors import UserError, listed, nearest, shown


def open_records(path: Path, config: DatasetConfig) -> Source:
    """Open an SDF or list of SMILES as a source. A property that a record does not have is a missing value.

    Raises:
        UserError: when targets are not set, or the file or one of its properties does not exist.
    """
    if len(config.smiles_columns) > 1:
        raise UserError(f"dataset.smiles={config.smiles} names several columns of a table; a record of {path} is one molecule. Use a CSV.")
    with _open(path) as molecules:
        kind, names = molecules.kind, molecules.columns[2 if molecules.kind == "sdf" else 1 :]  # without SMILES and an SDF's titles
    one, several = ("property", "properties") if kind == "sdf" else ("column", "columns")
    if config.targets is None:
        raise UserError(f"dataset=csv needs dataset.targets=[<name>,...]. {path} has the {several}: {listed(names) or 'none'}.")
    targets = tuple(config.targets)
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
