"""The result of a single molecule on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from molgcn.errors import shown


class TerminalTable:
    """A table that takes the same rows as an output file, and prints each row as a table of two columns."""

    def __init__(self) -> None:
        self._header: list[str] | None = None

    def write(self, rows: Iterable[Sequence[str]]) -> None:
        """Print rows. The first row ever written is the header."""
        for row in rows:
            if self._header is None:
                self._header = list(row)
                continue
            table = Table(show_header=False)
            for name, cell in zip(self._header, row, strict=True):
                table.add_row(escape(shown(name)), escape(shown(cell)))
            Console().print(table)
