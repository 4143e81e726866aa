"""Writes the rows of each part of a split as CSV, as they stand in the file that they come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from molgcn.data import levels
from molgcn.data.config import DatasetConfig
from molgcn.data.digits import digits_of
from molgcn.data.formats import open_molecules
from molgcn.data.load import LoadedDataset
from molgcn.data.packed import PackedMolecules
from molgcn.files.column import Column, Lists
from molgcn.files.spreadsheet import Writer
from molgcn.files.whole_file import whole


def save_parts(folder: Path, config: DatasetConfig, data: LoadedDataset) -> None:
    """Write `train.csv`, `val.csv`, `test.csv` and `calibration.csv` into a folder, for the parts that have molecules.

    They have all columns of the file and its order. Of an SDF these are SMILES, names and properties. Of a benchmark's or the built-in
    molecules they are row, SMILES and targets.
    """
    columns, rows = _of_files(config, data) if config.name == "csv" else _of_set(data)
    molecules = data.molecules
    part_of = {row: part for part, places in data.splits.items() for row in molecules.rows[places].tolist()}
    with ExitStack() as stack:
        writers = {}
        for part in data.splits:
            if len(data.splits[part]):
                temporary = stack.enter_context(whole(folder / f"{part}.csv"))
                writers[part] = Writer(stack.enter_context(open(temporary, "w", newline="", encoding="utf-8")))
                writers[part].writerow(columns)
        for row, cells in rows:
            if row in part_of:
                writers[part_of[row]].writerow(cells)


Rows = Iterator[tuple[int, Sequence[str]]]


def _of_files(config: DatasetConfig, data: LoadedDataset) -> tuple[list[str], Rows]:
    """Return the columns of all files of a set and its rows, counted through the files. A column that a file lacks is empty."""
    paths = [Path(path).expanduser() for path in config.files.values()]
    headers = [_columns(path, config) for path in paths]
    columns = list(dict.fromkeys(name for header in headers for name in header)) if len(headers) > 1 else headers[0]

    def rows() -> Rows:
        smiles = dict(zip(data.molecules.rows.tolist(), data.molecules.smiles or (), strict=False))
        starts = [start for _, start in data.molecules.files] or [0]
        for path, header, start in zip(paths, headers, starts, strict=True):
            with open_molecules(path, "auto", config.smiles_columns, option="dataset.path", header=config.header) as molecules:
                for row, record in enumerate(molecules.records, start):
                    cells = record.cells if molecules.kind == "smiles" else [smiles.get(row, ""), *record.cells[1:]]
                    yield row, cells if header == columns else [dict(zip(header, cells, strict=True)).get(name, "") for name in columns]

    return columns, rows()


def _columns(path: Path, config: DatasetConfig) -> list[str]:
    with open_molecules(path, "auto", config.smiles_columns, option="dataset.path", header=config.header) as molecules:
        return molecules.columns


def _of_set(data: LoadedDataset) -> tuple[list[str], Rows]:
    molecules = data.molecules
    assert molecules.smiles is not None
    targets = [_cells(molecules, place) for place in range(len(molecules.target_names))]

    def rows() -> Rows:
        for row, smiles, *cells in zip(molecules.rows.tolist(), molecules.smiles or (), *targets, strict=True):
            yield row, [str(row), smiles, *cells]

    return ["row", "smiles", *molecules.target_names], rows()


def _cells(molecules: PackedMolecules, target: int) -> list[str]:
    """Return a target's values as text, a list for each molecule where they are of atoms or bonds."""
    rows = levels.Rows.of(molecules)
    column = rows.column(target, Column("", rows.targets[:, target], digits_of(rows.targets[:, target])))
    if isinstance(column, Lists):
        return column.cells
    return ["" if np.isnan(value) else str(value) for value in molecules.targets[:, target]]
