"""A row of a source that is left out of the set."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SkippedRow:
    """A row of the source that did not become a molecule.

    Attributes:
        row: number of the data row, counted from 0.
        smiles: the SMILES of the row, "" where it has none.
        reason: why the row was left out.
    """

    row: int
    smiles: str
    reason: str
