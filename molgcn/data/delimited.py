"""Rows of a table as text: which sign separates its cells, what its header says, and every mistake named by row and line."""

from __future__ import annotations

import csv
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from molgcn.data.molecules import InvalidMoleculeError, smiles_reader
from molgcn.data.text import Lines
from molgcn.errors import UserError, nearest, shown

log = logging.getLogger(__name__)

_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
csv.field_size_limit(2**31 - 1)  # a text's own limit of a record is the one that counts


@dataclass(frozen=True)
class Delimited:
    """A table that is being read.

    Attributes:
        name: of the file, for messages.
        separator: between cells.
        header: names of the columns.
        rows: as many cells as the header has; blank lines are no rows and are not counted.
    """

    name: str
    separator: str
    header: list[str]
    rows: Iterator[list[str]]

    def place(self, column: str, option: str, advice: str = "") -> int:
        """Which cell of a row is that of a column.

        Args:
            column: its name.
            option: the key of the configuration that gave it.
            advice: what to say where the header seems to be a row.

        Raises:
            UserError: when there is no such column (the nearest is named) or there are two.
        """
        if self.header.count(column) == 1:
            return self.header.index(column)
        if column in self.header:
            raise UserError(f"{self.name} has {self.header.count(column)} columns named '{column}' ({option}). Rename all but one.")
        hint = nearest(column, self.header)
        if _is_row(self.header):
            first = shown(self.separator.join(self.header))
            hint = f" It seems to have no header: its first line is '{first}'. Put a line with the columns' names above it{advice}."
        raise UserError(f"{self.name} has no column '{shown(column)}' ({option}).{hint}")

    @property
    def decimal_comma(self) -> bool:
        """Whether 1,5 is a number, as in files of German or French spreadsheets."""
        return self.separator == ";"

    def say_separator(self, expected: str) -> None:
        """Says in one line that cells are separated by another sign than the file's name promises."""
        if self.separator != expected:
            more = ", its numbers may have decimal commas" if self.decimal_comma else ""
            log.info("%s: cells are separated by %s%s", self.name, _SEPARATORS[self.separator], more)


def separator_of(path: Path) -> str:
    """The sign that a file's ending promises: a tab for .tsv, else a comma."""
    return "\t" if path.name.lower().removesuffix(".gz").endswith(".tsv") else ","


def read_delimited(lines: Lines, separator: str, wanted: Sequence[str] = ()) -> Delimited:
    """Reads the header; another usual separator is taken where it gives the header the wanted columns and the promised one does not.

    Args:
        lines: of the text.
        separator: the one that the file's name promises.
        wanted: columns that will be asked for.

    Raises:
        UserError: for an empty text; while rows are read, for a row that does not fit the header, and what :class:`Lines` raises.
    """
    seen: list[str] = []
    headers: dict[str, list[str]] = {}
    failures: list[csv.Error] = []
    for sign in dict.fromkeys([separator, *_SEPARATORS]):
        try:
            headers[sign] = _header(lines, seen, sign)
        except csv.Error as error:  # of quotation marks, which may be right for another separator
            failures.append(error)
        promised = headers.get(separator, [])
        if len(promised) > 1 and set(wanted) <= set(promised):
            break
    if not headers:
        raise _unreadable(lines, failures[0]) from failures[0]
    separator = max(headers, key=lambda sign: (len({*wanted} & {*headers[sign]}), len(headers[sign])))
    if not any(headers[separator]):
        raise UserError(f"{lines.name} is empty. Expected a header line and one row a molecule.")
    return Delimited(lines.name, separator, headers[separator], _rows(lines, chain(seen, lines), separator))


def _header(lines: Lines, seen: list[str], separator: str) -> list[str]:
    """The first row that is no blank line; lines that are read for it are kept in `seen` and read from there first."""

    def replayed() -> Iterator[str]:
        yield from seen
        for line in lines:
            seen.append(line)
            yield line

    return next(filter(None, csv.reader(replayed(), delimiter=separator, strict=True)), [])


def _rows(lines: Lines, text: Iterator[str], separator: str) -> Iterator[list[str]]:
    reader = csv.reader(text, delimiter=separator, strict=True)
    try:
        width = len(next(filter(None, reader)))
        number = 0
        lines.begin(number)
        for row in reader:
            if row:
                if len(row) != width:
                    raise UserError(
                        f"{lines.place}: {len(row)} cells where the header has {width}. Correct the line; a cell that holds the separator "
                        "needs quotation marks around it."
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
    """Whether what should be a header holds a SMILES and, beside it, a number."""
    return any(map(_is_smiles, header)) and (len(header) == 1 or any(map(_is_number, header)))


def _is_smiles(cell: str) -> bool:
    from rdkit import rdBase

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
