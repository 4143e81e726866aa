"""Write metrics.csv: every logged value is appended as it comes, and cut off again where a run resumes from an earlier point."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only

from molgcn.files.spreadsheet import Writer
from molgcn.files.whole_file import whole

COLUMNS = (
    "epoch",
    "step",
    "train/loss",
    "val/loss",
    "lr",
    "throughput/molecules_per_second",
    "throughput/atoms_per_second",
    "throughput/step_ms",
    "throughput/data_wait",
    "throughput/memory_mb",
    "throughput/kernel_launches",
)


class MetricsCSV(Logger):
    """Writes one row per call to :meth:`log_metrics`; cells that a call does not set are empty.

    The column `epoch` is Lightning's and W&B's, which counts from 0; what is printed and `result.json` count from 1.

    Args:
        path: the file. An existing file is continued.
        metrics: the names of the metrics that are logged beside the loss, for example `val/mae/<target>`.
    """

    def __init__(self, path: Path, metrics: Sequence[str]) -> None:
        super().__init__()
        self.path = path
        self.columns = list(dict.fromkeys([*COLUMNS, *metrics]))
        self._start()

    @rank_zero_only
    def _start(self) -> None:
        if not self.path.exists():
            with whole(self.path) as temporary, open(temporary, "w", newline="") as file:
                Writer(file).writerow(self.columns)

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.path.name

    @property
    def version(self) -> str:
        """The version of the logger, which is empty: there is one file per run."""
        return ""

    @property
    def size(self) -> int:
        """The number of bytes written so far, to which :meth:`truncate` can return."""
        return self.path.stat().st_size

    @rank_zero_only
    def truncate(self, size: int) -> None:
        """Cut the file to a size in bytes, so that it loses the rows that a killed run wrote after its last checkpoint."""
        if self.size > size:
            os.truncate(self.path, size)

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Append a row."""
        row = {"step": step, **metrics}
        with open(self.path, "a", newline="") as file:
            Writer(file).writerow([_cell(row.get(column)) for column in self.columns])

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the run's folder holds config.yaml."""


def _cell(value: float | None) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.7g}"
