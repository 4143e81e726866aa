"""A stretch of rows on its way from a file to an output, with what became of them."""

from __future__ import annotations

from dataclasses import dataclass

from molgcn.data.formats import Record


@dataclass(frozen=True)
class Stretch:
    """R rows; what a command computes of them is a class of its own, which adds that.

    Attributes:
        start: number of the first row, counted from 0.
        records: R rows of the input.
        smiles: R SMILES written by RDKit, "" for what is no molecule; None when the input was SMILES.
        errors: number in the stretch, and why there is no result.
    """

    start: int
    records: list[Record]
    smiles: list[str] | None
    errors: dict[int, str]
