"""Reads files of molecules as streams of records: every row, in order, with all its columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from molgcn.data.delimited import read_delimited
from molgcn.data.text import RECORD_MB, Lines, open_text, rereadable, smiles_lines, source_name
from molgcn.errors import UserError

Kind = Literal["smiles", "sdf"]
Format = Literal["auto", "csv", "tsv", "smi", "sdf"]
_ENDINGS: dict[str, Format] = {
    **{".csv": "csv", ".tsv": "tsv", ".xlsx": "csv", ".parquet": "csv"},  # a workbook or Parquet file is read as CSV
    **{".smi": "smi", ".smiles": "smi", ".txt": "smi", ".sdf": "sdf", ".sd": "sdf"},
}
_FIELD = re.compile(r">(?=[\s<])[^<]*<(.*)>[^>]*")  # a name may have < and >; ">10 uM <x>" is a value


class Record(NamedTuple):
    """One row of a file."""

    cells: list[str]  # the row's columns as they stand in the file
    molecule: str  # the row's SMILES or mol block
    descriptors: tuple[float, ...] = ()  # the row's descriptors for the model, see `molgcn.screening.descriptors`
    # the features of the row's atoms and bonds that come from files, by what they describe: "atom" or "bond"
    own_features: Mapping[str, np.ndarray] = {}
    error: str = ""  # why the row cannot be predicted, if that is known before its molecule is read, else ""


@dataclass(frozen=True)
class Molecules:
    """A file of molecules that is open and can be read once."""

    name: str  # name of the file, for messages
    kind: Kind  # what the records' molecules are
    columns: list[str]  # names of the columns
    records: Iterator[Record]  # the rows
    text: Lines | None  # the text that is read, for a progress bar, or None where there is no file
    decimal_comma: bool = False  # whether 1,5 is a number in the file


def open_molecules(
    path: Path | None, form: Format, smiles: Sequence[str], max_record_mb: float = RECORD_MB, option: str = "input", header: bool = True
) -> AbstractContextManager[Molecules]:
    """Open a table (CSV, TSV, Excel, Parquet), a list of SMILES or an SDF, gzip or not. None is standard input.

    The format "auto" is decided by the file's ending, or is CSV for standard input. In a table the first of the columns `smiles` that
    exists holds the SMILES; without a header columns have the names 0, 1, 2 and so on. A mistake in the file, at once or
    while records are read, raises UserError.
    """
    chosen = form
    if form == "auto":
        chosen = "csv" if path is None else format_of(path)
    if chosen in _SEPARATORS:
        return _table(path, smiles, max_record_mb, option, _SEPARATORS[chosen], header)
    return (_smi if chosen == "smi" else _sdf)(path, max_record_mb, option)


def one_molecule(smiles: str) -> AbstractContextManager[Molecules]:
    """Return one SMILES as if it were an open file."""
    return nullcontext(Molecules(f"molecule={smiles}", "smiles", ["smiles"], iter([Record([smiles], smiles)]), None))


def format_of(path: Path) -> Format:
    """Return the format that a file's ending implies."""
    if _ending(path) not in _ENDINGS:
        raise UserError(
            f"input={path}: expected a file that ends in {', '.join(_ENDINGS)} (or with .gz after that). Say what it is with "
            "format=csv, tsv, smi or sdf."
        )
    return _ENDINGS[_ending(path)]


def holds_records(path: Path) -> bool:
    """Return whether a file's ending implies an SDF or a list of SMILES. False for .txt, which may also be a table."""
    ending = _ending(path)
    return ending != ".txt" and _ENDINGS.get(ending) in ("smi", "sdf")


def _ending(path: Path) -> str:
    name = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    return name.suffix.lower()


@contextmanager
def _table(
    path: Path | None, smiles: Sequence[str], max_record_mb: float, option: str, separator: str, header: bool
) -> Iterator[Molecules]:
    with open_text(path, option, max_record_mb, has_header=header) as text:
        table = read_delimited(text, separator, smiles, header)
        table.say_separator(separator)
        smiles = list(dict.fromkeys(smiles))
        column, *others = [name for name in smiles if name in table.header] or smiles
        advice = ", or say format=smi if it is a list of SMILES" if len(table.header) == 1 else ""
        option = f"smiles={smiles[0]}" if len(smiles) == 1 else "name it with smiles=<column>"
        place = table.place(column, option, advice, others)
        records = (Record(row, row[place]) for row in table.rows)
        yield Molecules(text.name, "smiles", table.header, records, text, table.decimal_comma)


@contextmanager
def _smi(path: Path | None, max_record_mb: float, option: str) -> Iterator[Molecules]:
    with open_text(path, option, max_record_mb) as text:
        lines = smiles_lines(text)
        first = next(lines, None)
        if first is None:
            raise UserError(f"{text.name} is empty. Expected one SMILES a line.")
        header = ["smiles", "name"]
        if first[0].lower() == "smiles":  # a header: no molecule is written like that
            header = [first[0], first[1] or "name"]
            first = next(lines, None)

        def records() -> Iterator[Record]:
            if first is not None:
                yield Record(first, first[0])
            yield from (Record(cells, cells[0]) for cells in lines)

        yield Molecules(text.name, "smiles", header, records(), text)


@contextmanager
def _sdf(path: Path | None, max_record_mb: float, option: str) -> Iterator[Molecules]:
    """Open an SDF, which is read twice, since its columns are the data fields of all records."""
    with rereadable(path) as file:
        fields: dict[str, None] = {}
        with open_text(file, option, max_record_mb, source_name(path)) as text:
            for record in _sdf_records(text):
                fields.update((match[1], None) for line in record if line[:1] == ">" and (match := _FIELD.fullmatch(line)))
        with open_text(file, option, max_record_mb, source_name(path)) as text:
            columns = [unused("smiles", fields), unused("name", fields), *fields]
            names = list(fields)
            records = (_sdf_record(record, names) for record in _sdf_records(text))
            yield Molecules(text.name, "sdf", columns, records, text)


def _sdf_records(lines: Lines) -> Iterator[list[str]]:
    record: list[str] = []
    number = 0
    lines.begin(number)
    for line in lines:
        if line.startswith("$$$$"):
            yield record
            record, number = [], number + 1
            lines.begin(number)
        else:
            record.append(line.rstrip("\r\n"))
    if any(line.strip() for line in record):
        yield record


def _sdf_record(lines: list[str], fields: Sequence[str]) -> Record:
    """Return a record whose cells are the name and the data fields. The cell of the SMILES is empty until RDKit has read the block."""
    end = next((place for place, line in enumerate(lines) if line.startswith("M  END")), len(lines) - 1) + 1
    values: dict[str, list[str]] = {}
    into: list[str] = []
    for line in lines[end:]:
        if match := _FIELD.fullmatch(line):
            into = values.setdefault(match[1], [])
        elif line:
            into.append(line)
    cells = ["", lines[0].strip() if lines else "", *("\n".join(values.get(field, ())) for field in fields)]
    return Record(cells, "\n".join(lines[:end]) + "\n")


def unused(name: str, taken: Sequence[str] | dict[str, None]) -> str:
    """Return the first of `name`, `name 2`, `name 3`, ... that is not taken."""
    number, candidate = 1, name
    while candidate in taken:
        number += 1
        candidate = f"{name} {number}"
    return candidate


_SEPARATORS = {"csv": ",", "tsv": "\t"}  # of the formats that are tables
