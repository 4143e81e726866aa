"""Rows of a source: their names in messages, and those that are left out of the set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

import numpy as np

from molgcn.errors import UserError, first_of, row_of

if TYPE_CHECKING:
    from molgcn.data.molecule_set import MoleculeSet


Files = Sequence[tuple[str, int]]


def file_and_row(files: Files, row: int) -> tuple[str, int]:
    """Return the file of a row, which is counted from 0 through all files, and the row's number in this file."""
    name, start = files[int(np.searchsorted([start for _, start in files], row, side="right")) - 1]
    return name, row - start


def named_row(source: str, files: Files, row: int, kind: str = "smiles") -> str:
    """Return how a message names a row of a source of one file or several; see :func:`molgcn.errors.row_of`."""
    return row_of(*(file_and_row(files, row) if files else (source, row)), kind)


class RowNames(Sequence[str]):
    """The names of rows, each made when it is asked for: "3", or "3 of val.csv" where there are several files."""

    def __init__(self, rows: np.ndarray, files: Files) -> None:
        self.rows = rows
        self.files = files

    @classmethod
    def of(cls, molecules: MoleculeSet) -> RowNames:
        """Return the names of the rows of a set's molecules."""
        return cls(molecules.rows, molecules.files)

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        row = int(self.rows[index])
        if not self.files:
            return str(row)
        name, number = file_and_row(self.files, row)
        return f"{number} of {name}"


@dataclass(frozen=True)
class SkippedRow:
    """A row of the source that did not become a molecule."""

    row: int  # number of the data row, counted from 0
    smiles: str  # the SMILES of the row, "" where it has none
    reason: str  # why the row was left out


def skipped_rows(molecules: MoleculeSet, reasons: Mapping[int, str], on_error: str, title: str, kind: str, advice: str) -> list[SkippedRow]:
    """Return all rows that a set has skipped, with those of the molecules that have a reason, by their positions, to be left out.

    Raises:
        UserError: for the first of these molecules with `dataset.on_error=raise`, or where no molecule would be left.
    """
    for place, reason in sorted(reasons.items()) if on_error == "raise" or len(reasons) == len(molecules) else ():
        row = named_row(title, molecules.files, int(molecules.rows[place]), kind)
        raise UserError(f"{row}: {reason}. {first_of(len(reasons), len(molecules))} {advice}")
    smiles = [""] * len(molecules) if molecules.smiles is None else molecules.smiles
    skipped = [SkippedRow(int(molecules.rows[place]), smiles[place], reason) for place, reason in reasons.items()]
    return sorted([*molecules.skipped, *skipped], key=lambda row: row.row)
