"""Prints tables whole, however narrow the terminal is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Column, Table


def print_table(console: Console, table: Table) -> None:
    """Print a table of which no number and no word of a header is cut or broken.

    Where the terminal is too narrow, headers fold between words and columns of text anywhere. Where that is not enough, lines become longer
    than the terminal.
    """
    for column in table.columns:
        if column.justify == "right":
            column.min_width = max(map(len, _words(console, column)), default=0)
        column.overflow = "fold"
    console.print(table, crop=False)


def _words(console: Console, column: Column) -> list[str]:
    return [word for cell in (column.header, *column.cells) for word in console.render_str(str(cell)).plain.split()]
