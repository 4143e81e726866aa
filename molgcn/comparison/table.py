"""The table of results on the terminal: the metrics of every target, with intervals and baselines below."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rich.markup import escape
from rich.table import Table

from molgcn.errors import shown
from molgcn.metrics import error_text, metric_title
from molgcn.metrics.comparison import Comparison
from molgcn.tasks.base import Task

_DETAILED = 4  # with more targets, the table shows intervals and baselines of the mean only; the report shows all


def results_tables(
    task: Task, title: str, values: Mapping[str, float], parts: Sequence[str], comparison: Comparison | None = None, monitor: str = ""
) -> list[Table]:
    """Make one table per kind of target, with one row per target and the columns of :func:`table_columns`.

    Values are by "<part>/<metric>/<target>", and NaN is shown as "-". The comparison's intervals, baselines and means are shown below them.
    """
    comparison = comparison or Comparison()
    tables = [_table(one, values, parts, comparison, monitor) for one in task.parts]
    tables[0].title, tables[-1].caption = escape(title), _caption(comparison)
    return tables


def table_columns(task: Task, values: Mapping[str, float], parts: Sequence[str], monitor: str = "") -> list[tuple[str, str]]:
    """Return the part and the metric of each column: the first metric of every part, and the other metrics of the last part.

    The first is the one that was monitored, "val/<metric>", or the task's own; the others are those that were chosen, or the task's own.
    The task's targets have the same metrics. One that is missing in `values`, "<part>/<metric>/<target>", has no column.
    """
    measured = {tuple(key.split("/")[:2]) for key in values}
    others = task.chosen or (task.metrics[0], *task.in_table[1:])
    columns = [*((part, task.shown_first(monitor)) for part in parts), *((parts[-1], metric) for metric in others)]
    return [column for column in dict.fromkeys(columns) if column in measured]


def _table(task: Task, values: Mapping[str, float], parts: Sequence[str], comparison: Comparison, monitor: str) -> Table:
    table = Table(title_justify="left", caption_justify="left")
    table.add_column("target", min_width=len(" 95 % from"))
    if task.has_units:
        table.add_column("unit")
    columns = table_columns(task, values, parts, monitor)
    for part, metric in columns:
        table.add_column(f"{part} {metric_title(metric)}", justify="right")

    def row(name: str, unit: str, cell: Callable[[str], str], ending: str) -> None:
        cells = [cell(f"{part}/{metric}{ending}") for part, metric in columns]
        table.add_row(escape(name.replace(" ", "\N{NO-BREAK SPACE}")), *([escape(unit)] if task.has_units else []), *cells)

    def details(ending: str) -> None:
        found = comparison.intervals
        if any(f"{part}/{metric}{ending}" in found for part, metric in columns):
            row(" 95 % from", "", lambda key: error_text(found[key].low) if key in found else "", ending)
            row(" 95 % to", "", lambda key: error_text(found[key].high) if key in found else "", ending)
        # only the last word, as "forest" of "random forest", so that the table fits into 80 columns
        for name, metrics in comparison.baselines.items():
            if not any(f"{part}/{metric}{ending}" in metrics for part, metric in columns):
                continue
            row(f" {name.split()[-1]}", "", lambda key, metrics=metrics: error_text(metrics[key]) if key in metrics else "", ending)  # type: ignore[misc]

    detailed = len(task.names) <= _DETAILED
    for name, unit in zip(task.names, task.units, strict=True):
        row(shown(name), unit or "-", lambda key: error_text(values[key]), f"/{name}")
        if detailed:
            details(f"/{name}")
    if len(task.names) > 1 and any(f"{part}/{metric}" in comparison.means for part, metric in columns):
        table.add_section()
        row(f"mean of {len(task.names)}", "", lambda key: _mean(key, comparison, len(task.names)), "")
        details("")
    return table


def _mean(key: str, comparison: Comparison, targets: int) -> str:
    """Return a mean as text, with the number of its targets where some are left out."""
    if key not in comparison.means:
        return ""
    count = comparison.counted[key]
    return error_text(comparison.means[key]) + ("" if count == targets else f" (of {count})")


def _caption(comparison: Comparison) -> str | None:
    if not comparison.intervals:
        return None
    left_out = f"; up to {comparison.undefined:,} of them do not define a metric and are left out" if comparison.undefined else ""
    return f"95 % intervals from {comparison.resamples:,} bootstrap resamples of the molecules{left_out}"
