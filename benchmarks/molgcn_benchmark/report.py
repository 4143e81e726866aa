"""Show the measurements as tables, on the terminal and as Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from molgcn_benchmark.learning import BACKENDS, final_errors
from molgcn_benchmark.published import WORKS, study_factor
from molgcn_benchmark.results import Results, Row, write_markdown

_NAMES = {
    "fused": "fused",
    "fused_captured": "captured",
    "fused_99kb": "99 KB",
    "pyg": "PyG",
    "pyg_hoisted": "hoisted",
    "pyg_compiled": "compiled",
}


@dataclass(frozen=True)
class Sheet:
    """A table of text cells; the first `words` columns are words, the others numbers."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int
    note: str = ""


def sheets(results: Results) -> list[Sheet]:
    """Return a table for each part that has rows."""
    makers = {
        "steps": [_steps],
        "published": [_published],
        "loaders": [loaders_sheet],
        "epochs": [epochs_sheet, _beside_epochs],
        "learning": [_learning],
    }
    rows = {name: table.rows for name, table in results.tables.items() if table.rows}
    return [_concise(make(rows[name])) for name in makers if name in rows for make in makers[name]]


def _concise(sheet: Sheet) -> Sheet:
    """Return a table without empty columns and without columns of words that are the same in every row, which go into the title."""
    same = [index for index in range(sheet.words) if len({row[index] for row in sheet.rows}) == 1]
    title = ", ".join([sheet.title, *(sheet.rows[0][index] for index in same)])
    empty = [index for index in range(sheet.words, len(sheet.header)) if not any(row[index] for row in sheet.rows)]
    header, *rows = ([cell for index, cell in enumerate(row) if index not in same + empty] for row in [sheet.header, *sheet.rows])
    return Sheet(title, header, rows, sheet.words - len(same), sheet.note)


def print_sheets(found: Iterable[Sheet], console: Console) -> None:
    """Print tables on the terminal."""
    for sheet in found:
        table = RichTable(title=escape(sheet.title), title_justify="left")
        for index, name in enumerate(sheet.header):
            table.add_column(escape(name), justify="left" if index < sheet.words else "right")
        for row in sheet.rows:
            table.add_row(*map(escape, row))
        console.print(table)
        if sheet.note:
            console.print(sheet.note, style="dim", highlight=False, markup=False)


_FACTS = {"date": "date of the last call"}  # earlier rows are kept


def write_report(results: Results, found: Iterable[Sheet], plots: Sequence[Path]) -> Path:
    """Write `report.md` with machine, tables and plots, and return its path.

    Args:
        results: the folder to write to, and the machine's facts.
        found: the tables, each a section.
        plots: the images that follow, which are in the same folder.
    """
    lines = [line for sheet in found for line in ("", f"## {sheet.title}", "", *markdown(sheet))]
    lines += [line for path in plots for line in ("", f"![{path.stem.replace('_', ' ')}]({path.name})")]
    path = results.folder / "report.md"
    write_markdown(path, "Benchmark", {_FACTS.get(name, name): value for name, value in results.facts.items()}, lines[1:])
    return path


def markdown(sheet: Sheet) -> list[str]:
    """Return the lines of a Markdown table, with its note above."""
    rule = ["---" if index < sheet.words else "---:" for index in range(len(sheet.header))]
    note = [sheet.note, ""] if sheet.note else []
    return [*note, *(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in [sheet.header, rule, *sheet.rows])]


def network(row: Row) -> str:
    """Return text for the width and the norm of a row's network."""
    return f"H={row['hidden_channels']}" + (f" {row['norm']} norm" if row["norm"] else "")


def _steps(rows: Sequence[Row]) -> Sheet:
    names = [name for name in _NAMES if any(row.get(f"{name}_ms") is not None for row in rows)]
    launches = [name for name in names if any(row.get(f"{name}_launches") is not None for row in rows)]
    header = ["molecules", "network", "work", "L", "B", *(f"{_NAMES[name]} ms" for name in names), "times PyG", "times best PyG"]
    cells = [
        [row["dataset"], network(row), row["work"].replace("_", " "), _whole(row["num_layers"]), _whole(row["batch_size"])]
        + [_short(row.get(f"{name}_ms")) for name in names]
        + [_short(row["against_pyg"]), _short(row["against_best"])]
        + [_whole(row.get(f"{name}_launches")) for name in launches]
        for row in rows
    ]
    note = "Medians of interleaved repeats, numbers checked against float64 first; backward is forward backward less training forward."
    return Sheet("Kernels", header + [f"{_NAMES[name]} launches" for name in launches], cells, 3, note)


def _published(rows: Sequence[Row]) -> Sheet:
    header = ["molecules", "network", "work", "L", "B", "fused ms", "PyG ms", "times PyG", "study"]
    cells = []
    for row in rows:
        for work in WORKS:
            times = [_short(row[f"{work}_{name}"]) for name in ("fused_ms", "pyg_ms", "factor")]
            study = study_factor(row["dataset"], work, row["num_layers"], row["batch_size"])
            cells.append([row["dataset"], network(row), work, _whole(row["num_layers"]), _whole(row["batch_size"]), *times, study])
    note = (
        "Every iteration starts with the batch in the host's memory. study: what SmallGraphGCN reports on an RTX 4070, H=32, QM9's beside "
        "all molecules but ZINC's; a range where only that of its nine configurations is known."
    )
    return Sheet("The published protocol", header, cells, 3, note)


def loaders_sheet(rows: Sequence[Row]) -> Sheet:
    """Return the table of :mod:`molgcn_benchmark.loaders`, with speed-ups over the first row of PyG."""
    baseline: dict[tuple[Any, ...], float] = {}
    for row in rows:
        if row["loader"].startswith("PyG"):
            baseline.setdefault((row["dataset"], row["batch_size"]), row["molecules_per_second"])
    cells = []
    for row in rows:
        rate, base = row["molecules_per_second"], baseline.get((row["dataset"], row["batch_size"]))
        times = _short(rate / base) if rate and base else ""
        cells.append([row["dataset"], row["loader"], _whole(row["batch_size"]), f"{row['microseconds']:,.1f}", _whole(rate), times])
    return Sheet("Loaders", ["molecules", "loader", "B", "us per batch", "molecules/s", "times PyG"], cells, 2)


def epochs_sheet(rows: Sequence[Row]) -> Sheet:
    """Return the table of :mod:`molgcn_benchmark.epochs`, with speed-ups over PyG with its own loader."""
    header = ["molecules", "network", "backend", "L", "B", "epoch ms", "molecules/s", "times PyG", "step ms"]
    cells = []
    for row in rows:
        baseline = [one for one in rows if same_size(one, row) and (one["backend"], one["loader"]) == ("pyg", "pyg")]
        times = _short(baseline[0]["epoch_ms"] / row["epoch_ms"]) if baseline else ""
        cells.append([*_run(row), f"{row['epoch_ms']:,.1f}", _whole(row["molecules_per_second"]), times, _short(row["step_ms"])])
    note = "From the start of one training epoch to the start of the next inside Trainer.fit, logging every 50 steps; medians."
    return Sheet("Epochs through the Trainer", header, cells, 3, note)


def _beside_epochs(rows: Sequence[Row]) -> Sheet:
    header = ["molecules", "network", "backend", "L", "B", "data wait", "launches", "validate ms", "save ms", "start s", "memory MB"]
    names = ("validation_ms", "checkpoint_ms", "start_up_s", "memory_mb")
    cells = [
        [*_run(row), f"{row['data_wait']:.0%}", _whole(row["kernel_launches"]), *(_short(row[name]) for name in names)] for row in rows
    ]
    note = (
        "Share of an epoch spent waiting for batches; kernels per step; one validation epoch; writing a checkpoint; from packed molecules "
        "to the end of the first step, compiling included; peak of a GPU's allocated memory, on a CPU of the process so far."
    )
    return Sheet("Beside the epochs", header, cells, 3, note)


def _run(row: Row) -> list[str]:
    """Return the cells for a row's backend, whose loader is named only if it is not the backend's own."""
    own = {"fused": "packed", "pyg": "pyg"}[row["backend"]]
    loader = "" if row["loader"] == own else f", {row['loader']} loader"
    workers = f", {row['workers']} workers" if row["workers"] else ""
    return [row["dataset"], network(row), row["backend"] + loader + workers, _whole(row["num_layers"]), _whole(row["batch_size"])]


def same_size(one: Row, other: Row) -> bool:
    """Return whether two rows have the same molecules, network and batch size."""
    return all(one[name] == other[name] for name in ("dataset", "device", "num_layers", "batch_size", "hidden_channels", "norm"))


def _learning(rows: Sequence[Row]) -> Sheet:
    def run(row: Row) -> tuple[Any, ...]:
        return row["dataset"], network(row), row["num_layers"], row["batch_size"], row["epochs"]

    header = ["molecules", "network", "backend", "L", "B", "epochs", "seeds", "validation MAE", "spread", "training s"]
    cells = []
    for key, group in groupby(sorted(rows, key=lambda row: tuple(map(str, run(row)))), run):
        members = list(group)
        errors = final_errors(members)
        for backend in (one for one in BACKENDS if one in errors):
            mean, spread, count = errors[backend]
            seconds = [row["seconds"] for row in members if row["backend"] == backend and row["epoch"] == row["epochs"]]
            sizes = [_whole(key[2]), _whole(key[3]), _whole(key[4]), str(count)]
            cells.append([key[0], key[1], backend, *sizes, f"{mean:.4f}", _short(spread), f"{sum(seconds) / len(seconds):.2f}"])
    note = "Validation MAE after the last epoch, mean over seeds; spread is its standard deviation. Seconds include validation."
    return Sheet("Learning", header, cells, 3, note)


def _short(value: float | None) -> str:
    """Return a number with three digits, or all digits before the point if there are more."""
    if value is None or math.isnan(value):
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _whole(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"
