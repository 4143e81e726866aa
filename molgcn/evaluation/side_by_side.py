"""Compare finished runs with each other: the tables, the files and the picture of their differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from molgcn.comparison.differences import Difference, differences
from molgcn.errors import UserError, counted, nearest, shown
from molgcn.evaluation.finished_runs import FinishedRun, check_comparable, pooled, read_run
from molgcn.files.spreadsheet import write_csv
from molgcn.files.whole_file import whole, write_text
from molgcn.metrics import error_text, metric_title
from molgcn.metrics.comparison import Interval
from molgcn.process.tables import print_table
from molgcn.report.plots import BLUE, GREY, new_figure, plain, save_png, tidy
from molgcn.screening.output import as_mistake
from molgcn.tasks.base import Task

_HEADERS = ("metric", "target", "unit", "first", "second", "difference", "molecules low", "molecules high")
_OF_FOLDS = ("folds difference", "folds low", "folds high", "p", "better")
_EXPLAINED = (
    "A difference is that of the metric over all test molecules. Intervals are 95 %: over molecules by {:,} bootstrap resamples, the same "
    "for all runs, and over folds by Tukey's HSD of all runs, with folds as blocks. A run is better where the interval over folds does not "
    "hold 0, or the one over molecules where there are no common folds. Folds share training molecules, so that their intervals are "
    "somewhat too narrow."
)


@dataclass(frozen=True)
class Comparison:
    """Runs side by side."""

    names: list[str]  # the names of the N runs
    task: Task  # what they predict
    values: dict[str, np.ndarray]  # by "<metric>/<target>", the metric over all test molecules [N]
    scores: dict[str, np.ndarray]  # by "<metric>/<target>", the metric in each common fold [F, N]; F is 0 without common folds
    differences: list[Difference]  # those of every pair, by metric and target
    molecules: int  # the number of test molecules
    resamples: int  # the number of resamples

    @property
    def folds(self) -> int:
        return len(next(iter(self.scores.values())))


def compare_runs(folders: Sequence[Path], metric: str | None, resamples: int, seed: int) -> Comparison:
    """Compare runs that were tested on the same molecules; see :func:`molgcn.compare.compare`."""
    runs = [read_run(folder) for folder in folders]
    folds = check_comparable(runs)
    task = runs[0].task
    if metric is not None and metric not in task.all_metrics:
        raise UserError(f"metric={metric} is not a metric of task={task.name}.{nearest(metric, task.all_metrics)}")
    wanted = [part.first_metric for part in task.parts] if metric is None else [metric]
    together = [pooled(run) for run in runs]

    def of_run(place: int, weights: np.ndarray | None) -> dict[str, np.ndarray]:
        return runs[place].task.values(together[place].predictions, together[place].targets, wanted, weights)

    functions = [partial(of_run, place) for place in range(len(runs))]
    found = [function(None) for function in functions]
    in_folds = [_in_folds(run, wanted) if folds else {} for run in runs]
    scores = {key: np.array([one[key] for one in in_folds]).T if folds else np.empty((0, len(runs))) for key in found[0]}
    results = differences(functions, scores, len(together[0].smiles), resamples, seed)
    names = [folder.name for folder in folders]
    if len(set(names)) < len(names):
        names = [str(folder) for folder in folders]
    values = {key: np.array([one[key][0] for one in found]) for key in found[0]}
    return Comparison(names, task, values, scores, results, len(together[0].smiles), resamples)


def _in_folds(run: FinishedRun, wanted: Sequence[str]) -> dict[str, list[float]]:
    measured = [run.task.measure(split.predictions, split.targets, wanted) for split in run.splits]
    return {key: [one[key] for one in measured] for key in measured[0]}


def print_comparison(comparison: Comparison) -> None:
    """Print one table of the runs and one of their differences."""
    console = Console()
    common = f", {comparison.folds} common folds" if comparison.folds else ", no common folds"
    console.print(f"{counted(comparison.molecules, 'test molecule')}{common}", highlight=False)
    for key in comparison.values:
        for headers, rows in (_runs_table(comparison, key), _pairs_table(comparison, key)):
            table = Table(title=escape(_title(comparison, key)) if headers[0] == "run" else None, title_justify="left")
            for place, header in enumerate(headers):
                table.add_column(header, justify="right" if place else "left")
            for row in rows:
                table.add_row(*map(escape, row))
            print_table(console, table)
    console.print(_EXPLAINED.format(comparison.resamples), style="italic", highlight=False)


def write_comparison(comparison: Comparison, folder: Path) -> None:
    """Write `comparison.md`, `comparison.csv`, `runs.csv`, `comparison.svg` and `comparison.png`."""
    with as_mistake(folder):
        folder.mkdir(parents=True, exist_ok=True)
        parts = [
            f"## {_title(comparison, key)}\n\n{_markdown(*_runs_table(comparison, key))}\n\n{_markdown(*_pairs_table(comparison, key))}"
            for key in comparison.values
        ]
        write_text(folder / "comparison.md", "\n\n".join([*parts, _EXPLAINED.format(comparison.resamples)]) + "\n")
        cells = [_cells(comparison, one) for one in comparison.differences]
        write_csv(folder / "comparison.csv", [[*_HEADERS, *_OF_FOLDS], *cells])
        headers = ["metric", "target", "unit", "run", "all molecules", *(f"fold {fold}" for fold in range(comparison.folds))]
        rows = [
            [*_named(comparison, key), name, *map(_exact, (values[place], *comparison.scores[key][:, place]))]
            for key, values in comparison.values.items()
            for place, name in enumerate(comparison.names)
        ]
        write_csv(folder / "runs.csv", [headers, *rows])
        _draw(comparison, folder)


def _named(comparison: Comparison, key: str) -> tuple[str, str, str]:
    metric, _, target = key.partition("/")
    task = next(part for part in comparison.task.parts if target in part.names)
    unit = dict(zip(task.names, task.units, strict=True))[target] if metric in task.in_units else ""
    return metric, target, unit


def _rising(comparison: Comparison, key: str) -> bool:
    metric, _, target = key.partition("/")
    return any(metric in part.rising for part in comparison.task.parts if target in part.names)


def _title(comparison: Comparison, key: str) -> str:
    metric, target, unit = _named(comparison, key)
    return f"{metric_title(metric)} of {shown(target)}" + (f" [{unit}]" if unit else "")


def _runs_table(comparison: Comparison, key: str) -> tuple[list[str], list[list[str]]]:
    rows = []
    for name, value, scores in zip(comparison.names, comparison.values[key].tolist(), comparison.scores[key].T, strict=True):
        spread = [f"{error_text(float(scores.mean()))} ± {scores.std(ddof=1):.2g}"] if comparison.folds else []
        rows.append([name, error_text(value), *spread])
    return ["run", "all molecules", *(["folds"] if comparison.folds else [])], rows


def _pairs_table(comparison: Comparison, key: str) -> tuple[list[str], list[list[str]]]:
    rows = []
    for one in comparison.differences:
        if one.key == key:
            better = one.better(_rising(comparison, key))
            cells = [f"{one.value:.3g}", _interval(one.molecules), *([_interval(one.folds), f"{one.p:.2g}"] if comparison.folds else [])]
            rows.append([_pair(comparison, one), *cells, "-" if better is None else comparison.names[better]])
    return ["pair", "difference", "over molecules", *(["over folds", "p"] if comparison.folds else []), "better"], rows


def _pair(comparison: Comparison, one: Difference) -> str:
    return f"{comparison.names[one.second]} - {comparison.names[one.first]}"


def _interval(interval: Interval | None) -> str:
    return "-" if interval is None else f"{interval.low:.3g} to {interval.high:.3g}"


def _cells(comparison: Comparison, one: Difference) -> list[str]:
    ends = [end for interval in (one.molecules, one.folds) for end in ((interval.low, interval.high) if interval else (np.nan, np.nan))]
    better = one.better(_rising(comparison, one.key))
    numbers = map(_exact, (one.value, *ends[:2], one.mean, *ends[2:], one.p))
    names = comparison.names[one.first], comparison.names[one.second]
    return [*_named(comparison, one.key), *names, *numbers, "" if better is None else comparison.names[better]]


def _exact(value: float) -> str:
    return "" if np.isnan(value) else repr(float(value))


def _markdown(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headers, ["---"] * len(headers), *([cell.replace("|", r"\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _draw(comparison: Comparison, folder: Path) -> None:
    keys, pairs = list(comparison.values), len(comparison.differences) // len(comparison.values)
    figure = new_figure(7, len(keys) * (0.9 + 0.4 * pairs))
    for place, key in enumerate(keys):
        axes = figure.add_subplot(len(keys), 1, place + 1)
        tidy(axes)
        own = [one for one in comparison.differences if one.key == key]
        for row, one in enumerate(own):
            for interval, value, color, shift, label in (
                (one.molecules, one.value, GREY, 0.12, "over molecules"),
                (one.folds, one.mean, BLUE, -0.12, "over folds (Tukey's HSD)"),
            ):
                if interval is not None:
                    axes.plot(
                        [interval.low, interval.high], [row + shift] * 2, color=color, linewidth=2.5, label=label if row == 0 else None
                    )
                    axes.plot(value, row + shift, "o", color=color, markersize=5)
        axes.axvline(0, color="0.3", linewidth=1)
        axes.set_yticks(range(len(own)), [plain(shown(_pair(comparison, one))) for one in own])
        axes.set_ylim(len(own) - 0.5, -0.5)
        axes.set_xlabel(plain(f"difference in {_title(comparison, key)}"))
        if place == 0 and axes.get_legend_handles_labels()[0]:
            figure.legend(loc="outside upper right", frameon=False, ncols=2)
    save_png(figure, folder / "comparison.png")
    with whole(folder / "comparison.svg") as temporary:
        figure.savefig(temporary, format="svg")
