"""The loggers that `logger=` names; metrics.csv is always among them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lightning.pytorch.loggers import Logger

from molgcn.config.run import Config
from molgcn.errors import UserError
from molgcn.nn.build import resolved_backend
from molgcn.training.metrics_csv import MetricsCSV
from molgcn.training.module import MoleculeModule
from molgcn.training.wandb_logger import Wandb


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
    """Return the loggers of a run: metrics.csv, which has these metrics beside the loss, and W&B or TensorBoard where `logger=` names it.

    Raises:
        UserError: If TensorBoard is asked for and not installed.
    """
    loggers: list[Logger] = [MetricsCSV(folder / "metrics.csv", metrics)]
    if config.logger.name == "wandb":
        settings = config.to_dict()
        # W&B's dashboard groups runs by it, and "auto" would say nothing
        settings["backend"]["name"] = resolved_backend(config.model, config.backend, len(config.dataset.smiles_columns))
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
