"""What a finished run reports: a table on the terminal and files in its folder."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from molgcn.data.packed import PackedMolecules


@dataclass(frozen=True)
class RunResult:
    """Results of one training run.

    Attributes:
        folder: the run's folder.
        best_loss: the lowest validation loss, standardised; None if there was no validation.
        best_epoch: epoch of the lowest validation loss, counted from 0; None if there was no validation.
        epochs: epochs trained.
        metrics: "<part>/<mae|rmse|r2>/<target>" for the parts train, val and test, in the targets' units.
        names: the targets.
        units: their units.
        molecules_per_second: median training rate.
    """

    folder: Path
    best_loss: float | None
    best_epoch: int | None
    epochs: int
    metrics: dict[str, float]
    names: tuple[str, ...]
    units: tuple[str, ...]
    molecules_per_second: float

    def save(self, overrides: list[str]) -> None:
        """Writes `result.json` into the run's folder, with what the command line changed."""
        values = {**asdict(self), "folder": str(self.folder), "overrides": overrides}
        (self.folder / "result.json").write_text(json.dumps(values, indent=2) + "\n")

    def print(self, console: Console | None = None) -> None:
        """Prints the results table."""
        console = console or Console()
        best = "no validation" if self.best_epoch is None else f"best epoch {self.best_epoch} of {self.epochs}"
        table = Table(title=f"{best}, {self.molecules_per_second:,.0f} molecules/s in training", title_justify="left")
        table.add_column("target")
        table.add_column("unit")
        for part in ("train", "val", "test"):
            table.add_column(f"{part} MAE", justify="right")
        table.add_column("test RMSE", justify="right")
        table.add_column("test R2", justify="right")
        for name, unit in zip(self.names, self.units, strict=True):
            cells = [self.metrics[f"{part}/mae/{name}"] for part in ("train", "val", "test")]
            cells += [self.metrics[f"test/rmse/{name}"], self.metrics[f"test/r2/{name}"]]
            table.add_row(escape(name), escape(unit) or "-", *("-" if math.isnan(cell) else f"{cell:.4g}" for cell in cells))
        console.print(table)
        console.print(f"Everything is in {escape(str(self.folder))}", soft_wrap=True, highlight=False)


def write_predictions(
    path: Path, molecules: PackedMolecules, predictions: np.ndarray, names: tuple[str, ...], units: tuple[str, ...]
) -> None:
    """`row, smiles, <target>, <target>_predicted, ...` with the unit in each header; one line a molecule.

    Cells that a spreadsheet would take for a formula get a leading apostrophe.
    """
    labels = [f"{name} [{unit}]" if unit else name for name, unit in zip(names, units, strict=True)]
    header = ["row", "smiles", *(column for label in labels for column in (label, f"{label} predicted"))]
    smiles = molecules.smiles or [""] * len(molecules)
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([_inert(cell) for cell in header])
        for i, (true, predicted) in enumerate(zip(molecules.targets, predictions, strict=True)):
            values = [value for pair in zip(true, predicted, strict=True) for value in pair]
            writer.writerow([int(molecules.rows[i]), _inert(smiles[i]), *("" if math.isnan(value) else f"{value:.7g}" for value in values)])


def _inert(text: str) -> str:
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text
