"""Compare the runs of a sweep: a table on the terminal, `results.csv` and `sweep.png` in its folder."""

from __future__ import annotations

import math
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
from molgcn.files.spreadsheet import Writer
from molgcn.files.whole_file import whole
from molgcn.search.tdc_benchmark import show_benchmark
from molgcn.training.monitor import LOSS
from molgcn.training.resume import NOTED, noted_overrides


@dataclass(frozen=True)
class SweepRun:
    """One job of a sweep or trial of a search.

    Attributes:
        job: the number of the job or trial.
        overrides: its overrides of the command line.
        value: the value of the objective; None where there is none.
        state: "complete", "pruned", "failed", "interrupted", "running", or "unfinished" where there is neither a result nor a reason.
        result: the content of its `result.json`; None where there is none.
        note: why it failed; "" where it did not.
    """

    job: str
    overrides: Sequence[str]
    value: float | None
    state: str = "complete"
    result: Mapping[str, Any] | None = None
    note: str = ""

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
    """Show the sweep that this process started, where it ended without Hydra's callback; see :func:`show_sweep`."""
    if _last_sweep is not None:
        show_sweep(_last_sweep)


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
    write_rows(folder, table_rows(runs, objective, maximize))
    print_runs(f"{counted(len(runs), 'run')} in {folder}", runs, objective, maximize)
    show_benchmark(folder, results)
    in_order = sorted(runs, key=lambda run: int(run.job) if run.job.isdigit() else 0)
    plot_sweep(in_order, folder / "sweep.png", objective, maximize=maximize)
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
    """Return a header and one row for each run, the best value first; there is a column of states where not all are complete."""
    worst = -math.inf if maximize else math.inf
    ordered = sorted(runs, key=lambda run: worst if run.value is None or math.isnan(run.value) else run.value, reverse=maximize)
    results = [run.result for run in runs if run.result is not None]
    tests = _tests(results[0]) if results else {}
    states = any(run.state != "complete" for run in runs)
    header = ["job", *(["state"] if states else []), "overrides", objective, *tests.values(), "molecules/s"]
    return [header, *(_row(run, tests, states) for run in ordered)]


def _row(run: SweepRun, tests: Iterable[str], states: bool) -> list[str]:
    result = run.result or {"metrics": {}, "molecules_per_second": None}
    return [
        run.job,
        *([run.state] if states else []),
        " ".join(run.overrides) + (f" ({run.note})" if run.note else ""),
        _number(run.value),
        *(_number(result["metrics"].get(key)) for key in tests),
        "-" if result["molecules_per_second"] is None else f"{result['molecules_per_second']:.0f}",
    ]


def print_runs(title: str, runs: Sequence[SweepRun], objective: str, maximize: bool = False) -> None:
    """Print a table of runs, with the overrides that all share in its title and the others in its rows."""
    first = runs[0].overrides if len(runs) > 1 else ()
    shared = [override for override in first if all(override in run.overrides for run in runs)]
    differing = [replace(run, overrides=[override for override in run.overrides if override not in shared]) for run in runs]
    rows = table_rows(differing, objective, maximize)
    table = Table(title=escape(title + (f", all with {' '.join(shared)}" if shared else "")), title_justify="left")
    for name in rows[0]:  # where the terminal is too narrow, overrides take several lines; nothing is cut
        justify: Literal["left", "right"] = "left" if name in ("job", "state", "overrides") else "right"
        table.add_column(escape(name), justify=justify, overflow="fold", no_wrap=name != "overrides")
    for row in rows[1:]:
        table.add_row(*(escape(cell) for cell in row))
    Console().print(table)


def write_rows(folder: Path, rows: Sequence[Sequence[str]]) -> None:
    """Write `results.csv` into a folder."""
    with whole(folder / "results.csv") as temporary, open(temporary, "w", newline="") as file:
        Writer(file).writerows(rows)


def _as_number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text.strip("'")


def _tests(result: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers of a result's test errors, such as "test MAE gap [eV]", by the keys of the first metric."""
    units = dict(zip(result["names"], result["units"], strict=True))
    keys = [key.split("/", 2) for key in result["metrics"] if key.startswith("test/")]
    named = [metric for metric in result.get("chosen", ()) if any(metric == one for _, one, _ in keys)]
    first = [*named, *(metric for _, metric, _ in keys)][:1]
    return {
        "/".join(("test", metric, name)): f"test {metric.upper()} {name}" + (f" [{units[name]}]" if units.get(name) else "")
        for _, metric, name in keys
        if metric in first
    }


def _number(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.5g}"
