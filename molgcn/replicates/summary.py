"""The results of a run of several trainings, as `result.json` and as a table on the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from molgcn.calibration.assessment import print_assessment
from molgcn.comparison.table import table_columns
from molgcn.data.splits.parts import PARTS
from molgcn.errors import counted, shown
from molgcn.metrics import metric_title
from molgcn.process.tables import print_table
from molgcn.tasks.base import Task
from molgcn.training.result import RunResult


@dataclass(frozen=True)
class Summary(RunResult):
    """The results of a run of several trainings.

    `best_loss` and `best_value` are means over the members, and `epochs` the sum. `metrics` are means over the members' splits. For an
    ensemble, whose members share one split, they are those of the members' mean prediction.
    """

    # the sample standard deviation (n - 1) of each metric over splits; empty for an ensemble
    deviations: dict[str, float] = field(default_factory=dict)
    members: dict[str, dict[str, float]] = field(default_factory=dict)  # the metrics of each member, by its name
    refit_epochs: int | None = None  # the epochs of the training on all molecules, whose folder is `refit`; None where there is none

    @property
    def refitted(self) -> str:
        """A sentence about the training on all molecules; empty where there is none."""
        if self.refit_epochs is None:
            return ""
        count = counted(self.refit_epochs, "epoch")
        return f"refit/ holds a model of all molecules, trained for {count}, the median of the folds' best; no molecule is left to test it."

    @property
    def parts(self) -> list[str]:
        """The names of the parts that were measured."""
        return [part for part in PARTS if any(key.startswith(f"{part}/") for key in self.metrics)]

    def columns(self, target: str) -> list[tuple[str, str]]:
        """Return the part and the metric of each column of a target's table."""
        task = next(task for task in self.learned.parts if target in task.names)
        return table_columns(task, self.metrics, self.parts, self.monitor)

    def headers(self, target: str) -> list[str]:
        return [f"{part} {metric_title(metric)}" for part, metric in self.columns(target)]

    def rows(self, target: str) -> list[tuple[str, list[str]]]:
        return [(name, self._cells(metrics, target)) for name, metrics in self.members.items()]

    def totals(self, target: str) -> list[tuple[str, list[str]]]:
        """Return the name and the cells of the rows that sum up a target's table: the ensemble, or mean and standard deviation."""
        if not self.deviations:
            return [("ensemble", self._cells(self.metrics, target))]
        return [("mean", self._cells(self.metrics, target)), ("std", self._cells(self.deviations, target, digits=2))]

    def _cells(self, metrics: Mapping[str, float], target: str, digits: int = 4) -> list[str]:
        values = [metrics.get(f"{part}/{metric}/{target}", math.nan) for part, metric in self.columns(target)]
        return ["-" if math.isnan(value) else f"{value:.{digits}g}" for value in values]

    def print(self, console: Console | None = None) -> None:
        """Print one table for each task, with the rows that sum up every target; a single target has one row for each training too."""
        console = console or Console()
        rate = self.molecules_per_second
        speed = "nothing was left to train" if rate is None else f"{rate:,.0f} molecules/s in training"
        console.print(f"{len(self.members)} trainings, {speed}", style="italic", highlight=False)
        for task in self.learned.parts:
            print_table(console, self._table(task))
        if not self.deviations:  # an ensemble, whose models predict together
            print_assessment(console, self.parts[-1], self.calibrated, self.names, self.metrics)
        if self.refitted:
            console.print(self.refitted, highlight=False)
        console.print(f"Everything is in {escape(str(self.folder))}", soft_wrap=True, highlight=False)

    def _table(self, task: Task) -> Table:
        table, several = Table(), len(task.names) > 1
        for name in ("target", "") if several else (escape(shown(task.labels[0])),):
            table.add_column(name, min_width=len("member_0"))
        for header in self.headers(task.names[0]):
            table.add_column(header, justify="right")
        for name, label in zip(task.names, task.labels, strict=True):
            if not several:
                for member, cells in self.rows(name):
                    table.add_row(member, *cells)
                table.add_section()
            for number, (total, cells) in enumerate(self.totals(name)):
                target = [escape(shown(label)) if number == 0 else ""] if several else []
                table.add_row(*target, total, *cells)
        return table
