"""The loggers that `logger=` names, and metrics.csv, which is always among them.

Every logged value is appended to metrics.csv as it comes, and cut off again where a run resumes from an earlier point.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only

from molgcn.config.run import Config
from molgcn.errors import UserError
from molgcn.files.spreadsheet import Writer, write_csv
from molgcn.nn.build import resolved_backend
from molgcn.training.wandb_logger import Wandb

if TYPE_CHECKING:
    from molgcn.training.module import MoleculeModule

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


@contextmanager
def loggers_of_run(module: MoleculeModule, folder: Path) -> Iterator[list[Logger]]:
    """Give the loggers of a module's run in `folder`, and close W&B's at the end; see :func:`build_loggers`."""
    loggers = build_loggers(module.config, folder, [*module.task.keys("val", module.monitor.measured), module.monitor.key])
    failed = True
    try:
        yield loggers
        failed = False
    finally:
        for logger in loggers:
            if isinstance(logger, Wandb):
                logger.finish(failed)


def build_loggers(config: Config, folder: Path, metrics: Sequence[str]) -> list[Logger]:
    """Return the loggers of a run: metrics.csv, with these metrics beside the loss, and W&B or TensorBoard where `logger=` names it."""
    loggers: list[Logger] = [MetricsCSV(folder / "metrics.csv", metrics)]
    if config.logger.name == "wandb":
        settings = config.to_dict()
        # W&B's dashboard groups runs by it, and "auto" would say nothing
        settings["backend"]["name"] = resolved_backend(
            config.model, config.backend, len(config.dataset.smiles_columns), config.dataset.levels
        )
        loggers.append(Wandb(folder, config.logger, settings))
    if config.logger.name == "tensorboard":
        try:
            import tensorboard  # noqa: F401
        except ImportError:
            raise UserError(
                "logger=tensorboard needs the package tensorboard: pip install molgcn[tensorboard], or use logger=csv."
            ) from None
        from lightning.pytorch.loggers import TensorBoardLogger

        loggers.append(TensorBoardLogger(folder, name="tensorboard", version=""))
    return loggers


class MetricsCSV(Logger):
    """Writes one row per call to :meth:`log_metrics`; cells that a call does not set are empty. An existing file is continued.

    The columns are :data:`COLUMNS` and further metrics, for example `val/mae/<target>`. `epoch` is Lightning's and W&B's, which counts from
    0; what is printed and `result.json` count from 1.
    """

    def __init__(self, path: Path, metrics: Sequence[str]) -> None:
        super().__init__()
        self.path = path
        self.columns = list(dict.fromkeys([*COLUMNS, *metrics]))
        self._start()

    @rank_zero_only
    def _start(self) -> None:
        if not self.path.exists():
            write_csv(self.path, [self.columns])

    @property
    def name(self) -> str:
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
