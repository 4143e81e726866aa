"""The results of a finished run, as a table on the terminal and as `result.json` in its folder."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from molgcn.calibration.assessment import print_assessment
from molgcn.comparison.table import results_tables
from molgcn.data.target_config import TargetConfig
from molgcn.errors import UserError
from molgcn.files.json_file import read_json, write_json
from molgcn.metrics.comparison import Comparison, with_nan, without_nan
from molgcn.process.tables import print_table
from molgcn.tasks.base import Task
from molgcn.tasks.registry import build_task
from molgcn.training.monitor import LOSS


@dataclass(frozen=True)
class RunResult:
    """The results of one training run.

    Attributes:
        folder: the run's folder.
        best_loss: the validation loss of the best epoch; None if there was no validation.
        best_epoch: the epoch of the best validation by `training.monitor`, counted from 1; None if there was no validation.
        epochs: the number of epochs trained, including one that `trainer.max_steps` or `max_time` cut short.
        metrics: the metrics of train, val and test, where there are such parts, by "<part>/<metric>/<target>".
        names: the names of the targets.
        units: the units of the targets ("" = none).
        molecules_per_second: the median training rate; None where nothing was left to train.
        task: the name of the task.
        tasks: the name of each target's own task, by target.
        monitor: `training.monitor`, the value by which the best epoch was chosen.
        maximize: whether more of that value is better.
        best_value: that value in the best epoch; None if there was no validation.
        calibrated: what the uncertainties were calibrated on; "" where they were not.
        chosen: the metrics that `training.metrics` names; empty for those of the task.
        comparison: baselines, intervals and thresholds of the test metrics.
    """

    folder: Path
    best_loss: float | None
    best_epoch: int | None
    epochs: int
    metrics: dict[str, float]
    names: tuple[str, ...]
    units: tuple[str, ...]
    molecules_per_second: float | None
    task: str = "regression"
    tasks: dict[str, str] = field(default_factory=dict)
    monitor: str = LOSS
    maximize: bool = False
    best_value: float | None = None
    calibrated: str = ""
    chosen: tuple[str, ...] = ()
    comparison: Comparison = field(default_factory=Comparison)

    @property
    def learned(self) -> Task:
        """The task with its targets, which `task`, `tasks`, `names` and `units` describe."""
        return build_task(self.task, self.names, self.units, 0, TargetConfig(tasks=self.tasks)).showing(self.chosen)

    def save(self, overrides: list[str]) -> None:
        """Write `result.json` into the run's folder, with the overrides of the command line."""
        values = {**asdict(self), "folder": str(self.folder), "overrides": overrides, **asdict(self.comparison)}
        del values["comparison"]  # its fields stand beside the metrics
        write_json(self.folder / "result.json", without_nan(values))
        (self.folder / "failure.json").unlink(missing_ok=True)

    @classmethod
    def load(cls, folder: Path) -> RunResult:
        """Return the result that :meth:`save` wrote into a run's folder.

        Args:
            folder: the run's folder, which has a `result.json`.

        Raises:
            UserError: If the file is damaged.
        """
        values = read_json(folder / "result.json")
        try:
            known = {field.name: values[field.name] for field in fields(RunResult) if field.name in values}
            known |= {"metrics": with_nan(known["metrics"]), "comparison": Comparison.of(values)}
            names, units = tuple(known["names"]), tuple(known["units"])
            return RunResult(**known | {"folder": folder, "names": names, "units": units})
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UserError(f"{folder / 'result.json'} is not what a run wrote: {error}. Delete it and resume the run.") from error

    def print(self, console: Console | None = None) -> None:
        """Print the results table."""
        console = console or Console()
        best = f"best epoch {self.best_epoch} of {self.epochs}"
        if self.best_epoch is None:
            best = "no validation" if self.monitor == LOSS else f"no validation defines {self.monitor}"
        rate = self.molecules_per_second
        title = f"{best}, " + ("nothing was left to train" if rate is None else f"{rate:,.0f} molecules/s in training")
        parts = list(dict.fromkeys(key.partition("/")[0] for key in self.metrics))
        for table in results_tables(self.learned, title, self.metrics, parts, self.comparison, self.monitor):
            print_table(console, table)
        print_assessment(console, parts[-1], self.calibrated, self.names, self.metrics)
        console.print(f"Everything is in {escape(str(self.folder))}", soft_wrap=True, highlight=False)


def save_failure(folder: Path, overrides: list[str], error: Exception) -> None:
    """Write `failure.json` into the folder of a sweep's job that failed, where the sweep finds it.

    The job may run in another process or on another machine than the sweep. Where the folder already has a `result.json`, nothing is
    written, and the sweep shows that result.
    """
    if (folder / "result.json").exists():
        return
    values = {"folder": str(folder), "overrides": overrides, "error": str(error)}
    write_json(folder / "failure.json", values)
