"""A row of a source that is left out of the set."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SkippedRow:
    """A row of the source that did not become a molecule: its 0-based data row, its SMILES and why."""

    row: int
    smiles: str
    reason: str
