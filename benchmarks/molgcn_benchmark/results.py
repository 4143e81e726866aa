"""Store measurements: CSV tables that grow row by row, with one folder for each machine, and reports on them."""

from __future__ import annotations

import csv
import io
import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from molgcn.errors import UserError
from molgcn.files.spreadsheet import Writer
from molgcn.files.whole_file import whole

Row = dict[str, Any]
SAME = ("cpu", "gpu", "threads", "torch", "torch-geometric", "molgcn")  # facts that must agree for all rows of a folder


class Table:
    """The rows of a CSV file, each identified by its key columns.

    A row is written as soon as it is measured, and rows of earlier calls are kept.

    Args:
        path: the file, which is made with the first row. None keeps the rows in memory only.
        key: names of the columns that identify a row.

    Raises:
        UserError: if the file lacks a key column.
    """

    def __init__(self, path: Path | None, key: Sequence[str]) -> None:
        self.path = path
        self.key = tuple(key)
        self.rows: list[Row] = []
        self._columns: list[str] = []
        if path is not None and path.exists():
            self._read(path)

    def _read(self, path: Path) -> None:
        with path.open(newline="") as file:
            reader = csv.DictReader(file)
            self._columns = list(reader.fieldnames or [])
            missing = [name for name in self.key if name not in self._columns]
            if missing:
                raise UserError(
                    f"{path} has no column {', '.join(missing)}: it is not a table of this benchmark, or an older one. Give another "
                    "output=, or move the file away."
                )
            found = list(reader)
        whole = [row for row in found if None not in row and None not in row.values()]
        self.rows = [{name: _value(text) for name, text in row.items()} for row in whole]
        if len(whole) < len(found):  # a call was killed while it wrote a row
            self._write(path)

    def find(self, **key: Any) -> Row | None:
        """Return the row with these values in its key columns, or None."""
        wanted = [_text(key[name]) for name in self.key]
        return next((row for row in self.rows if [_text(row[name]) for name in self.key] == wanted), None)

    def add(self, row: Row) -> Row:
        """Append a row, or replace the row with the same key, and return it."""
        before = self.find(**{name: row[name] for name in self.key})
        if before is not None:
            self.rows.remove(before)
        self.rows.append(row)
        new = [name for name in row if name not in self._columns]
        self._columns += new
        if self.path is None:
            return row
        if new or before is not None:
            self._write(self.path)
        else:
            with self.path.open("a", newline="") as file:
                Writer(file).writerow(self._cells(row))
        return row

    def _write(self, path: Path) -> None:
        text = io.StringIO()
        writer = Writer(text)
        writer.writerow(self._columns)
        writer.writerows(self._cells(row) for row in self.rows)
        write_text(path, text.getvalue())

    def _cells(self, row: Mapping[str, Any]) -> list[str]:
        return [_text(row.get(name)) for name in self._columns]


class Results:
    """A folder of tables that were measured on one machine with one set of versions.

    Args:
        folder: folder of the files.
        facts: facts of the machine, see :func:`molgcn_benchmark.machine.machine`.

    Raises:
        UserError: if the folder holds measurements of another machine or version.
    """

    def __init__(self, folder: Path, facts: Mapping[str, Any]) -> None:
        self.folder = folder
        self.facts = dict(facts)
        self.tables: dict[str, Table] = {}
        check_machine(folder / "results.json", self.facts, f"output={folder}", "Give another folder with output=.")
        folder.mkdir(parents=True, exist_ok=True)

    def table(self, name: str, key: Sequence[str]) -> Table:
        """Return the table in `<name>.csv`."""
        if name not in self.tables:
            self.tables[name] = Table(self.folder / f"{name}.csv", key)
        return self.tables[name]

    def save(self) -> None:
        """Write `results.json` with machine, versions and all rows."""
        write_json(self.folder / "results.json", self.facts, {name: table.rows for name, table in self.tables.items()})


def write_json(path: Path, facts: Mapping[str, Any], tables: Mapping[str, Iterable[Row]]) -> None:
    """Write the machine's facts and the tables' rows as JSON, as :func:`write_text` does.

    Args:
        path: the file.
        facts: facts of the machine, see :func:`molgcn_benchmark.machine.machine`.
        tables: the rows of each table.
    """
    write_text(path, json.dumps({"machine": dict(facts), **tables}, indent=1) + "\n")


def write_markdown(path: Path | None, title: str, facts: Mapping[str, Any], lines: Iterable[str]) -> str:
    """Write a report in Markdown, as :func:`write_text` does, and return its text.

    Args:
        path: the file. None writes none.
        title: the report's title.
        facts: facts of the machine and the measurement, a list below the title.
        lines: the lines that follow. Paragraphs are wrapped at 120 characters; headings, images and rows of tables are not.
    """
    wrap = textwrap.TextWrapper(120, break_long_words=False, break_on_hyphens=False).wrap
    wrapped = [part for line in lines for part in ([line] if line.startswith(("|", "#", "!")) else wrap(line) or [""])]
    text = "\n".join([f"# {title}", "", *(f"- {name}: {value}" for name, value in facts.items()), "", *wrapped]) + "\n"
    if path is not None:
        write_text(path, text)
    return text


def write_text(path: Path, text: str) -> None:
    """Write a file, whose folder is made if it does not exist. An earlier file is replaced only once the new one is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")


def check_machine(path: Path, facts: Mapping[str, Any], title: str, advice: str, same: Sequence[str] = SAME) -> None:
    """Check that rows measured here can be compared with those of a file that :func:`write_json` or :func:`write_markdown` wrote.

    Args:
        path: the file, which need not exist.
        facts: facts of this machine, see :func:`molgcn_benchmark.machine.machine`.
        title: name of the file or folder for the error.
        advice: sentence of the error that says what to do.
        same: names of the facts that must agree.

    Raises:
        UserError: if one of these facts differs.
    """
    before = read_facts(path)
    for name in same if before else ():
        if str(before.get(name)) != str(facts.get(name)):
            raise UserError(
                f"{title} holds measurements with {name} {before.get(name)}; here it is {facts.get(name)}, and rows of both cannot be "
                f"compared. {advice}"
            )


def read_facts(path: Path) -> dict[str, Any]:
    """Return the machine's facts from a file that :func:`write_json` wrote or, as texts, from a report; empty if there is no file.

    Args:
        path: the file.

    Raises:
        UserError: if the file is something else.
    """
    if not path.exists():
        return {}
    if path.suffix == ".md":
        lines = path.read_text(encoding="utf-8").splitlines()
        return dict(line[2:].split(": ", 1) for line in lines if line.startswith("- ") and ": " in line)
    try:
        return dict(json.loads(path.read_text())["machine"])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is not a result of this benchmark ({error}). Give another folder with output=.") from error


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text or None
