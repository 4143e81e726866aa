"""A chunk: consecutive rows of an input file that are computed together, with their errors, and how its rows are shown and written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from molgcn.data.formats import Record, unused
from molgcn.data.reaction_smiles import joined
from molgcn.errors import UserError, first_of, require, row_of, shown

if TYPE_CHECKING:
    from molgcn.screening.config import OnError


@dataclass(frozen=True)
class Chunk:
    """R consecutive rows of the input. Each command adds its results in a subclass."""

    start: int  # the number of the first row, counted from 0
    records: list[Record]  # the R rows of the input
    smiles: list[str] | None  # R SMILES that RDKit writes, "" where a row is not a molecule. None when the input was SMILES
    errors: dict[int, str]  # the reason of each row without a result, by its number in the chunk


def check_listed(chunk: Chunk, on_error: str, done: str = "predicted") -> None:
    """Raise UserError for the first SMILES of a list in memory that has no result, unless `on_error` is "nan"."""
    require(on_error in ("raise", "nan"), "on_error", on_error, '"raise" or "nan"')
    if chunk.errors and on_error == "raise":
        place, reason = min(chunk.errors.items())
        others = first_of(len(chunk.errors), chunk.start + len(chunk.records), read=" read so far")
        row, text = row_of("the list of SMILES", chunk.start + place), shown(shown_row(chunk, place))
        raise UserError(
            f"{row}: '{text}' cannot be {done}: {reason}. {others} Correct it, or keep such rows without values with on_error=\"nan\"."
        )


def shown_row(chunk: Chunk, place: int) -> str:
    """Return the text that a message shows of a row: its SMILES, or the name of a structure."""
    record = chunk.records[place]
    return joined(record.molecule.split("\n")) if chunk.smiles is None else record.cells[1]


def written_rows(chunk: Chunk, on_error: OnError) -> Iterator[tuple[int, list[str], list[str]]]:
    """Yield the rows of a chunk that are written.

    Each is a triple: the number in the chunk, the cells of the input, and the cells after the results.
    """
    for place, record in enumerate(chunk.records):
        error = chunk.errors.get(place, "")
        if error and on_error == "skip":
            continue
        cells = record.cells if chunk.smiles is None else [chunk.smiles[place], *record.cells[1:]]
        yield place, cells, [error] if on_error == "nan" else []


def header_of(columns: Sequence[str], results: Sequence[str], on_error: OnError) -> list[str]:
    """Return the header of the output: the columns of the input, then those of the results under names not yet taken, then of errors."""
    header = list(columns)
    for name in [*results, *(["error"] if on_error == "nan" else [])]:
        header.append(unused(name, header))
    return header
