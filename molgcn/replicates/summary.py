"""What a run of several trainings comes to, as `result.json` and as a table on the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from molgcn.data.splits.parts import PARTS
from molgcn.errors import shown
from molgcn.metrics import metric_title
from molgcn.training.result import RunResult


@dataclass(frozen=True)
class Summary(RunResult):
    """Results of a run of several trainings.

    `best_loss` is the mean of its members, `epochs` their sum. `metrics` are means over the members' splits, or of one split those of the
    members' mean prediction.

    Attributes:
        deviations: sample standard deviation (n - 1) of each metric over splits; empty for an ensemble.
        members: each member's metrics, by its name.
    """

    deviations: dict[str, float] = field(default_factory=dict)
    members: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def parts(self) -> list[str]:
        """The parts that were measured."""
        return [part for part in PARTS if any(key.startswith(f"{part}/") for key in self.metrics)]

    @property
    def columns(self) -> list[tuple[str, str]]:
        """Part and metric of each column of a table."""
        measured = {key.split("/")[1] for key in self.metrics}
        return [(part, metric) for part, metric in self.learned.table_columns(self.parts) if metric in measured]

    @property
    def headers(self) -> list[str]:
        """The title of each of them."""
        return [f"{part} {metric_title(metric)}" for part, metric in self.columns]

    def rows(self, target: str) -> list[tuple[str, list[str]]]:
        """Return name and cells of each member's row for a target."""
        return [(name, self._cells(metrics, target)) for name, metrics in self.members.items()]

    def totals(self, target: str) -> list[tuple[str, list[str]]]:
        """Return name and cells of the rows that sum them up."""
        if not self.deviations:
            return [("ensemble", self._cells(self.metrics, target))]
        return [("mean", self._cells(self.metrics, target)), ("std", self._cells(self.deviations, target, digits=2))]

    def _cells(self, metrics: Mapping[str, float], target: str, digits: int = 4) -> list[str]:
        values = [metrics.get(f"{part}/{metric}/{target}", math.nan) for part, metric in self.columns]
        return ["-" if math.isnan(value) else f"{value:.{digits}g}" for value in values]

    def print(self, console: Console | None = None) -> None:
        """Prints the table: with a single target a row a training, and below them, of every target, what they come to."""
        console = console or Console()
        rate = self.molecules_per_second
        speed = "nothing was left to train" if rate is None else f"{rate:,.0f} molecules/s in training"
        table = Table(title=f"{len(self.members)} trainings, {speed}", title_justify="left")
        several = len(self.names) > 1
        for name in ("target", "") if several else (escape(shown(self.learned.labels[0])),):
            table.add_column(name)
        for header in self.headers:
            table.add_column(header, justify="right")
        for name, label in zip(self.names, self.learned.labels, strict=True):
            if not several:
                for member, cells in self.rows(name):
                    table.add_row(member, *cells)
                table.add_section()
            for number, (total, cells) in enumerate(self.totals(name)):
                target = [escape(shown(label)) if number == 0 else ""] if several else []
                table.add_row(*target, total, *cells)
        console.print(table)
        console.print(f"Everything is in {escape(str(self.folder))}", soft_wrap=True, highlight=False)
