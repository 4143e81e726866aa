"""A chunk: consecutive rows of an input file that are computed together, with their errors."""

from __future__ import annotations

from dataclasses import dataclass

from molgcn.data.formats import Record


@dataclass(frozen=True)
class Chunk:
    """R consecutive rows of the input. Each command adds its results in a subclass.

    Attributes:
        start: the number of the first row, counted from 0.
        records: the R rows of the input.
        smiles: R SMILES that RDKit writes, "" where a row is not a molecule. None when the input was SMILES.
        errors: the reason of each row without a result, by its number in the chunk.
    """

    start: int
    records: list[Record]
    smiles: list[str] | None
    errors: dict[int, str]
