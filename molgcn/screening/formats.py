"""Files of molecules as streams of records: every row, in order, with all its columns."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from molgcn.data.config import nearest
from molgcn.data.tables import separated_otherwise
from molgcn.errors import UserError
from molgcn.screening.prepare import Kind
from molgcn.screening.text import Text, as_mistake, open_text, rereadable, source_name

Format = Literal["auto", "csv", "tsv", "smi", "sdf"]
_ENDINGS = {".csv": "csv", ".tsv": "tsv", ".smi": "smi", ".smiles": "smi", ".txt": "smi", ".sdf": "sdf", ".sd": "sdf"}
_FIELD = re.compile(r"^>[^\n]*<([^\n]*)>[^\n]*$")


class Record(NamedTuple):
    """One row: its columns as they stand in the file, and the SMILES or mol block in it."""

    cells: list[str]
    molecule: str


@dataclass(frozen=True)
class Molecules:
    """A file of molecules, open for one reading.

    Attributes:
        name: of the file, for messages.
        kind: what the records' molecules are.
        columns: names of the cells.
        records: the rows.
        text: below them, for a progress bar.
    """

    name: str
    kind: Kind
    columns: list[str]
    records: Iterator[Record]
    text: Text


def open_molecules(path: Path | None, form: Format, smiles: str) -> AbstractContextManager[Molecules]:
    """Opens a table (CSV, TSV), a list of SMILES or an SDF, gzip or not.

    Args:
        path: the file; None is standard input.
        form: "auto" goes by the file's ending; standard input is CSV.
        smiles: the column that holds SMILES, in a table.

    Raises:
        UserError: for an ending that says nothing, a file that cannot be read, a table without such a column; while records are read,
            for a line that does not fit or text that is not UTF-8.
    """
    chosen = _format(path) if form == "auto" else form
    return _READERS[chosen](path, smiles)


def _format(path: Path | None) -> str:
    if path is None:
        return "csv"
    ending = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    if ending.lower() not in _ENDINGS:
        raise UserError(
            f"input={path}: expected a file that ends in {', '.join(_ENDINGS)} (or with .gz after that). Say what it is with "
            "format=csv, tsv, smi or sdf."
        )
    return _ENDINGS[ending.lower()]


@contextmanager
def _csv(path: Path | None, smiles: str) -> Iterator[Molecules]:
    with open_text(path) as text:
        yield _table(text, smiles, ",")


@contextmanager
def _tsv(path: Path | None, smiles: str) -> Iterator[Molecules]:
    with open_text(path) as text:
        yield _table(text, smiles, "\t")


def _table(text: Text, smiles: str, delimiter: str) -> Molecules:
    reader = csv.reader(text.lines, delimiter=delimiter, strict=True)
    rows = _rows(reader, text.name)
    header = next(rows, [])
    if not any(header):
        raise UserError(f"{text.name} is empty. Expected a header line and one row a molecule.")
    if smiles not in header:
        lists = " A list of SMILES without a header needs format=smi." if len(header) == 1 else ""
        hint = separated_otherwise(header) or f"{nearest(smiles, header)}{lists}"
        raise UserError(f"{text.name} has no column '{smiles}' (smiles={smiles}).{hint}")
    if header.count(smiles) > 1:
        raise UserError(f"{text.name} has {header.count(smiles)} columns named '{smiles}'. Rename all but one.")
    place = header.index(smiles)

    def records() -> Iterator[Record]:
        for row in rows:
            if len(row) != len(header):
                raise UserError(
                    f"{text.name}, line {reader.line_num}: {len(row)} cells where the header has {len(header)}. Correct the line; a cell "
                    "that holds the separator needs quotation marks around it."
                )
            yield Record(row, row[place])

    return Molecules(text.name, "smiles", header, records(), text)


def _rows(reader: Iterator[list[str]], name: str) -> Iterator[list[str]]:
    """The rows that are not blank lines."""
    lines = 0
    with as_mistake(name):
        try:
            for row in reader:
                lines += 1
                if row:
                    yield row
        except csv.Error as error:
            raise UserError(f"{name} is not a readable table (after {lines} rows): {error}. Correct it or fetch it again.") from error


@contextmanager
def _smi(path: Path | None, smiles: str) -> Iterator[Molecules]:
    with open_text(path) as text:
        lines = _lines(text)
        first = next(lines, None)
        if first is None:
            raise UserError(f"{text.name} is empty. Expected one SMILES a line.")
        header = ["smiles", "name"]
        if first[0].lower() == "smiles":  # no molecule is written like that
            header = [first[0], first[1] or "name"]
            first = next(lines, None)

        def records() -> Iterator[Record]:
            if first is not None:
                yield Record(first, first[0])
            yield from (Record(cells, cells[0]) for cells in lines)

        yield Molecules(text.name, "smiles", header, records(), text)


def _lines(text: Text) -> Iterator[list[str]]:
    """First word and the rest of every line that is not blank."""
    with as_mistake(text.name):
        for line in text.lines:
            words = line.split(None, 1)
            if words:
                yield [words[0], words[1].rstrip() if len(words) > 1 else ""]


@contextmanager
def _sdf(path: Path | None, smiles: str) -> Iterator[Molecules]:
    """Reads twice: the data fields of all records are the columns."""
    with rereadable(path) as file:
        fields: dict[str, None] = {}
        with open_text(file) as text:
            for line in _sdf_lines(text):
                if line[:1] == ">" and (match := _FIELD.match(line)):
                    fields.setdefault(match[1])
        with open_text(file) as text:
            columns = [unused("smiles", fields), unused("name", fields), *fields]
            named = Text(source_name(path), text.lines, text.raw, text.size)
            yield Molecules(named.name, "sdf", columns, _sdf_records(named, list(fields)), named)


def _sdf_lines(text: Text) -> Iterator[str]:
    with as_mistake(text.name):
        for line in text.lines:
            yield line.rstrip("\r\n")


def _sdf_records(text: Text, fields: Sequence[str]) -> Iterator[Record]:
    record: list[str] = []
    for line in _sdf_lines(text):
        if line.startswith("$$$$"):
            yield _sdf_record(record, fields)
            record = []
        else:
            record.append(line)
    if any(line.strip() for line in record):
        yield _sdf_record(record, fields)


def _sdf_record(lines: list[str], fields: Sequence[str]) -> Record:
    """Name and data fields as cells; the SMILES, which is not known before RDKit read the block, is left empty."""
    end = next((place for place, line in enumerate(lines) if line.startswith("M  END")), len(lines) - 1) + 1
    values: dict[str, list[str]] = {}
    into: list[str] = []
    for line in lines[end:]:
        if match := _FIELD.match(line):
            into = values.setdefault(match[1], [])
        elif line:
            into.append(line)
    cells = ["", lines[0].strip() if lines else "", *("\n".join(values.get(field, ())) for field in fields)]
    return Record(cells, "\n".join(lines[:end]) + "\n")


def unused(name: str, taken: Sequence[str] | dict[str, None]) -> str:
    """`name`, or `name 2`, `name 3`, ...: the first that is not taken."""
    number, candidate = 1, name
    while candidate in taken:
        number += 1
        candidate = f"{name} {number}"
    return candidate


_READERS: dict[str, Callable[[Path | None, str], AbstractContextManager[Molecules]]] = {
    "csv": _csv,
    "tsv": _tsv,
    "smi": _smi,
    "sdf": _sdf,
}
