"""Reads tables as rows of text: finds the separator, reads the header, and names row and line of every mistake."""

from __future__ import annotations

import csv
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from molgcn.data.molecules import InvalidMoleculeError, smiles_reader
from molgcn.data.reaction_smiles import sides_of
from molgcn.data.text import Lines
from molgcn.errors import UserError, nearest, shown

log = logging.getLogger(__name__)

_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
csv.field_size_limit(2**31 - 1)  # the length of a record is limited where the text is read


@dataclass(frozen=True)
class Delimited:
    """A table that is being read."""

    name: str  # name of the file, for messages
    separator: str  # the character between cells
    header: list[str]  # names of the columns
    rows: Iterator[list[str]]  # the rows, each with as many cells as the header. Blank lines are not rows and are not counted
    has_header: bool = True  # whether the first line has the columns' names, which are otherwise 0, 1, 2 and so on

    def place(self, column: str, option: str, advice: str = "", otherwise: Sequence[str] = ()) -> int:
        """Return the position of a column in a row.

        For messages there are `option`, the key and value that named the column, `advice` for a table that seems to have no header, and
        `otherwise`, further columns that would have done and are missing too.

        Raises:
            UserError: when there is no such column (the nearest is named) or several columns have the name.
        """
        if self.header.count(column) == 1:
            return self.header.index(column)
        if column in self.header:
            raise UserError(f"{self.name} has {self.header.count(column)} columns named '{column}' ({option}). Rename all but one.")
        missing = [column, *otherwise]
        hint = nearest(missing[-1], self.header)
        if self.has_header and _is_row(self.header):
            first = shown(self.separator.join(self.header))
            key = "dataset.header" if option.startswith("dataset.") else "header"
            hint = (
                f" It seems to have no header: its first line is '{first}'. Put a line with the columns' names above it, or say "
                f"{key}=false, with which columns have the names 0, 1, 2 and so on{advice}."
            )
        names = " or ".join(f"'{shown(name)}'" for name in missing)
        raise UserError(f"{self.name} has no column {names} ({option}).{hint}")

    @property
    def decimal_comma(self) -> bool:
        """Whether 1,5 is a number, as in tables of German or French spreadsheets."""
        return self.separator == ";"

    def say_separator(self, expected: str) -> None:
        """Log the separator if it is not the one that the file's name implies."""
        if self.separator != expected:
            more = ", its numbers may have decimal commas" if self.decimal_comma else ""
            log.info("%s: cells are separated by %s%s", self.name, _SEPARATORS[self.separator], more)


def separator_of(path: Path) -> str:
    """Return the separator that a file's ending implies: a tab for .tsv, else a comma."""
    return "\t" if path.name.lower().removesuffix(".gz").endswith(".tsv") else ","


def read_delimited(lines: Lines, separator: str, wanted: Sequence[str] = (), has_header: bool = True) -> Delimited:
    """Read the header of a table and return the table, ready to read its rows. Without a header columns have the names 0, 1, 2 and so on.

    Another usual separator is taken where the header has the wanted columns with it, and does not have them with the implied one. A row
    whose number of cells differs from the header's raises UserError while rows are read.
    """
    seen: list[str] = []
    headers: dict[str, list[str]] = {}
    failures: list[csv.Error] = []
    for sign in dict.fromkeys([separator, *_SEPARATORS]):
        try:
            first = _header(lines, seen, sign)
            headers[sign] = first if has_header else [str(place) for place in range(len(first))]
        except csv.Error as error:  # the quotation marks may be right with another separator
            failures.append(error)
        promised = headers.get(separator, [])
        if len(promised) > 1 and set(wanted) <= set(promised):
            break
    if not headers:
        raise _unreadable(lines, failures[0]) from failures[0]
    separator = max(headers, key=lambda sign: (len({*wanted} & {*headers[sign]}), len(headers[sign])))
    if not any(headers[separator]):
        raise UserError(f"{lines.name} is empty. Expected a header line and one row per molecule.")
    return Delimited(lines.name, separator, headers[separator], _rows(lines, chain(seen, lines), separator, has_header), has_header)


def _header(lines: Lines, seen: list[str], separator: str) -> list[str]:
    """Return the first row that is not blank. It is read from the lines in `seen` first, to which further lines are appended."""

    def replayed() -> Iterator[str]:
        yield from seen
        for line in lines:
            seen.append(line)
            yield line

    return next(filter(None, csv.reader(replayed(), delimiter=separator, strict=True)), [])


def _rows(lines: Lines, text: Iterator[str], separator: str, has_header: bool) -> Iterator[list[str]]:
    reader = csv.reader(text, delimiter=separator, strict=True)
    try:
        first = next(filter(None, reader))
        width, number = len(first), 0
        if not has_header:
            yield first
            number = 1
        lines.begin(number)
        for row in reader:
            if row:
                if len(row) != width:
                    expected = f"{'header' if has_header else 'first line'} has {width}"
                    raise UserError(
                        f"{lines.place}: {len(row)} cells where the {expected}. Correct the line; a cell that holds the separator needs "
                        "quotation marks around it."
                    )
                yield row
                number += 1
            lines.begin(number)
    except csv.Error as error:
        raise _unreadable(lines, error) from error


def _unreadable(lines: Lines, error: csv.Error) -> UserError:
    return UserError(
        f"{lines.place} is not a readable row of a table: {error}. Correct the quotation marks there, or fetch the file again."
    )


def _is_row(header: Sequence[str]) -> bool:
    """Return whether a header looks like a row: it holds a SMILES and, if there are other cells, a number."""
    return any(map(_is_smiles, header)) and (len(header) == 1 or any(map(_is_number, header)))


def _is_smiles(cell: str) -> bool:
    from rdkit import rdBase

    if sides_of(cell) is not None:
        return True
    with rdBase.BlockLogs():
        try:
            smiles_reader("implicit")(cell)
        except InvalidMoleculeError:
            return False
    return True


def _is_number(cell: str) -> bool:
    try:
        float(cell.replace(",", "."))
    except ValueError:
        return False
    return True
