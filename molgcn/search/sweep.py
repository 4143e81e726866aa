"""Compare the runs of a sweep: a table on the terminal, `results.csv` and `sweep.png` in its folder."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from hydra.experimental.callback import Callback
from omegaconf import DictConfig
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from molgcn.errors import counted
from molgcn.files.json_file import read_json
from molgcn.files.spreadsheet import write_csv
from molgcn.search.tdc_benchmark import show_benchmark
from molgcn.training.monitor import LOSS
from molgcn.training.resume import NOTED, noted_overrides

OVERRIDES = 14  # characters, the least width of the column of overrides


@dataclass(frozen=True)
class SweepRun:
    """One job of a sweep or trial of a search."""

    job: str  # the number of the job or trial
    overrides: Sequence[str]  # its overrides of the command line
    value: float | None  # the value of the objective; None where there is none
    # "complete", "pruned", "failed", "interrupted", "running", or "unfinished" where there is neither a result nor a reason
    state: str = "complete"
    result: Mapping[str, Any] | None = None  # the content of its `result.json`; None where there is none
    note: str = ""  # why it failed; "" where it did not

    @property
    def params(self) -> dict[str, float | str]:
        """The values of its overrides by key; those that are numbers are floats."""
        pairs = (override.lstrip("+").partition("=")[::2] for override in self.overrides)
        return {key: _as_number(value) for key, value in pairs}


class SweepTable(Callback):
    """Shows the jobs of a `--multirun` when it ends."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Remember the sweep's folder for :func:`show_last_sweep`."""
        global _last_sweep
        _last_sweep = Path(config.hydra.sweep.dir)

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Show the sweep, and exit with code 2 where a job has no result: jobs in a launcher's other processes cannot set the exit code."""
        if not show_sweep(Path(config.hydra.sweep.dir)):
            raise SystemExit(2)


_last_sweep: Path | None = None


def show_last_sweep() -> None:
    """Show, once, the sweep that this process started, where it ended without Hydra's callback; see :func:`show_sweep`."""
    global _last_sweep
    sweep, _last_sweep = _last_sweep, None
    if sweep is not None:
        show_sweep(sweep)


def show_sweep(folder: Path) -> bool:
    """Print, save and plot the results of the jobs in a sweep's folder, the best first, and return whether every job has one.

    They are ranked by the value that `training.monitor` names in all of them, and by the validation loss where it differs.
    """
    from molgcn.search.sweep_plot import plot_sweep

    runs = _gather(folder)
    if not runs:
        return True
    objective, maximize = LOSS, False
    results = [run.result for run in runs if run.result is not None]
    monitors = {(result.get("monitor", LOSS), result.get("maximize", False)) for result in results}
    if len(monitors) == 1 and monitors != {(LOSS, False)}:
        ((objective, maximize),) = monitors
        runs = [run if run.result is None else replace(run, value=run.result["best_value"]) for run in runs]
    write_csv(folder / "results.csv", table_rows(runs, objective, maximize))
    print_runs(f"{counted(len(runs), 'run')} in {folder}", runs, objective, maximize)
    show_benchmark(folder, results)
    plot_sweep(in_order(runs), folder / "sweep.png", objective, maximize=maximize)
    return all(run.state == "complete" for run in runs)


def _gather(folder: Path) -> list[SweepRun]:
    """Return the jobs of a sweep's folder, with the validation loss as the value of each."""
    failures = [read_json(path) for path in sorted(folder.glob("*/failure.json"))]
    results = [read_json(path) for path in sorted(folder.glob("*/result.json")) if not (path.parent / "failure.json").exists()]
    ended = {Path(run["folder"]).name for run in (*failures, *results)}
    started = [path.parents[1] for path in sorted(folder.glob(f"*/{NOTED}"))]
    return [
        *(SweepRun(job.name, noted_overrides(job), None, "unfinished") for job in started if job.name not in ended),
        *(SweepRun(Path(failed["folder"]).name, failed["overrides"], None, "failed", note=failed["error"]) for failed in failures),
        *(SweepRun(Path(result["folder"]).name, result["overrides"], result["best_loss"], result=result) for result in results),
    ]


def table_rows(runs: Sequence[SweepRun], objective: str, maximize: bool = False) -> list[list[str]]:
    """Return a header and one row for each run; there is a column of states where not all are complete.

    The best value is first, or the first job where the runs have other targets than each other and cannot be ranked.
    """
    worst = -math.inf if maximize else math.inf
    alike = len({tuple(run.result["names"]) for run in runs if run.result is not None}) < 2
    if alike:
        ordered = sorted(runs, key=lambda run: worst if run.value is None or math.isnan(run.value) else run.value, reverse=maximize)
    else:
        ordered = in_order(runs)
    tests = [{} if run.result is None else _tests(run.result, alike) for run in ordered]
    columns = list(dict.fromkeys(name for found in tests for name in found))
    states = any(run.state != "complete" for run in runs)
    header = ["job", *(["state"] if states else []), "overrides", objective, *columns, "molecules/s"]
    return [header, *(_row(run, [found.get(name, "-") for name in columns], states) for run, found in zip(ordered, tests, strict=True))]


def _row(run: SweepRun, tests: Iterable[str], states: bool) -> list[str]:
    speed = None if run.result is None else run.result["molecules_per_second"]
    return [
        run.job,
        *([run.state] if states else []),
        " ".join(run.overrides) + (f" ({run.note})" if run.note else ""),
        _number(run.value),
        *tests,
        "-" if speed is None else f"{speed:.0f}",
    ]


def in_order(runs: Iterable[SweepRun]) -> list[SweepRun]:
    return sorted(runs, key=lambda run: int(run.job) if run.job.isdigit() else 0)


def print_runs(title: str, runs: Sequence[SweepRun], objective: str, maximize: bool = False) -> None:
    """Print a table of runs, with the overrides that all share in its title and the others in its rows."""
    first = runs[0].overrides if len(runs) > 1 else ()
    shared = [override for override in first if all(override in run.overrides for run in runs)]
    differing = [replace(run, overrides=[override for override in run.overrides if override not in shared]) for run in runs]
    rows = table_rows(differing, objective, maximize)
    table = Table(title=escape(title + (f", all with {' '.join(shared)}" if shared else "")), title_justify="left")
    console = Console()  # headers, and where the terminal is too narrow also overrides, take several lines; nothing is cut
    columns = list(zip(*rows, strict=True))
    widths = [OVERRIDES if name == "overrides" else max(map(len, [*name.split(), *cells])) for name, *cells in columns]
    console.width = max(console.width, sum(widths) + 3 * len(widths) + 1)
    for (name, *_), width in zip(columns, widths, strict=True):
        justify: Literal["left", "right"] = "left" if name in ("job", "state", "overrides", "metric") else "right"
        table.add_column(escape(name), justify=justify, overflow="fold", width=None if name == "overrides" else width)
    for row in rows[1:]:
        table.add_row(*(escape(cell) for cell in row))
    console.print(table)


def _as_number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text.strip("'")


def _tests(result: Mapping[str, Any], named: bool) -> dict[str, str]:
    """Return a result's test errors of its first metric by headers such as "test MAE gap [eV]", or that metric and the errors' mean."""
    units = dict(zip(result["names"], result["units"], strict=True))
    errors = {tuple(key.split("/", 2)[1:]): value for key, value in result["metrics"].items() if key.startswith("test/")}
    metrics = list(dict.fromkeys(metric for metric, _ in errors))
    first = next((metric for metric in (*result.get("chosen", ()), *metrics) if metric in metrics), "")
    own = {name: value for (metric, name), value in errors.items() if metric == first}
    if named:
        return {
            f"test {first.upper()} {name}" + (f" [{units[name]}]" if units.get(name) else ""): _number(value) for name, value in own.items()
        }
    known = [value for value in own.values() if value is not None]
    return {"metric": first.upper(), "test": _number(statistics.fmean(known) if known else None)}


def _number(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.5g}"
