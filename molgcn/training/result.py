"""What a finished run reports: a table on the terminal and files in its folder."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from molgcn.data.digits import digits_of
from molgcn.data.packed import PackedMolecules
from molgcn.errors import shown
from molgcn.json_file import write_json
from molgcn.metrics import error_text
from molgcn.spreadsheet import Writer


@dataclass(frozen=True)
class RunResult:
    """Results of one training run.

    Attributes:
        folder: the run's folder.
        best_loss: the lowest validation loss, standardised; None if there was no validation.
        best_epoch: epoch of the lowest validation loss, counted from 1; None if there was no validation.
        epochs: epochs trained, with one that `trainer.max_steps` or `max_time` ended.
        metrics: "<part>/<mae|rmse|r2>/<target>" for the parts train, val and test, in the targets' units.
        names: the targets.
        units: their units.
        molecules_per_second: median training rate; None where nothing was left to train.
    """

    folder: Path
    best_loss: float | None
    best_epoch: int | None
    epochs: int
    metrics: dict[str, float]
    names: tuple[str, ...]
    units: tuple[str, ...]
    molecules_per_second: float | None

    def save(self, overrides: list[str]) -> None:
        """Writes `result.json` into the run's folder, with what the command line changed."""
        values = {**asdict(self), "folder": str(self.folder), "metrics": without_nan(self.metrics), "overrides": overrides}
        write_json(self.folder / "result.json", values)
        (self.folder / "failure.json").unlink(missing_ok=True)

    def print(self, console: Console | None = None) -> None:
        """Prints the results table."""
        console = console or Console()
        best = "no validation" if self.best_epoch is None else f"best epoch {self.best_epoch} of {self.epochs}"
        rate = self.molecules_per_second
        title = f"{best}, " + ("nothing was left to train" if rate is None else f"{rate:,.0f} molecules/s in training")
        console.print(results_table(title, self.metrics, self.names, self.units, ("train", "val", "test")))
        console.print(f"Everything is in {escape(str(self.folder))}", soft_wrap=True, highlight=False)


def save_failure(folder: Path, overrides: list[str], error: Exception) -> None:
    """Writes `failure.json` in the place of a sweep's job that came to no result: the job may have run in another process or machine.

    The result of an earlier run there, which a job does not touch, stays what the sweep shows.
    """
    if (folder / "result.json").exists():
        return
    values = {"folder": str(folder), "overrides": overrides, "error": str(error)}
    write_json(folder / "failure.json", values)


def results_table(title: str, metrics: Mapping[str, float], names: Sequence[str], units: Sequence[str], parts: Sequence[str]) -> Table:
    """One row a target: the MAE of every part, RMSE and R2 of the last one.

    Args:
        title: line above the table.
        metrics: "<part>/<mae|rmse|r2>/<target>", in the targets' units; NaN shows as "-".
        names: the targets.
        units: their units.
        parts: the parts to show.
    """
    table = Table(title=escape(title), title_justify="left")
    table.add_column("target")
    table.add_column("unit")
    columns = [*((part, "mae") for part in parts), (parts[-1], "rmse"), (parts[-1], "r2")]
    for part, metric in columns:
        table.add_column(f"{part} {metric.upper()}", justify="right")
    for name, unit in zip(names, units, strict=True):
        cells = [metrics[f"{part}/{metric}/{name}"] for part, metric in columns]
        table.add_row(escape(shown(name)), escape(unit) or "-", *map(error_text, cells))
    return table


def without_nan(metrics: Mapping[str, float]) -> dict[str, float | None]:
    """The metrics with None for NaN, which JSON does not have."""
    return {name: None if math.isnan(value) else value for name, value in metrics.items()}


def write_predictions(
    path: Path, molecules: PackedMolecules, predictions: np.ndarray, names: tuple[str, ...], units: tuple[str, ...]
) -> None:
    """`row, smiles, <target> [<unit>], <target> [<unit>] predicted, ...`; one line a molecule."""
    header = ["row", "smiles"]
    for name, unit in zip(names, units, strict=True):
        header += [label(name, unit), f"{label(name, unit)} predicted"]
    smiles = molecules.smiles or [""] * len(molecules)
    forms = [f".{digits_of(column)}g" for column in molecules.targets.T for _ in ("true", "predicted")]
    with open(path, "w", newline="") as file:
        writer = Writer(file)
        writer.writerow(header)
        for i, (true, predicted) in enumerate(zip(molecules.targets, predictions, strict=True)):
            values = [value for pair in zip(true, predicted, strict=True) for value in pair]
            writer.writerow([int(molecules.rows[i]), smiles[i], *map(_cell, values, forms)])


def _cell(value: float, form: str) -> str:
    return "" if math.isnan(value) else format(value, form)


def label(name: str, unit: str) -> str:
    """A column's header: "gap [eV]"."""
    return f"{name} [{unit}]" if unit else name
