"""The loggers that `logger=` names; metrics.csv is always among them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lightning.pytorch.loggers import Logger

from molgcn.config import Config
from molgcn.errors import UserError
from molgcn.nn.build import resolved_backend
from molgcn.training.metrics_csv import MetricsCSV
from molgcn.training.wandb_logger import Wandb


def build_loggers(config: Config, folder: Path, metrics: Sequence[str]) -> list[Logger]:
    """metrics.csv, with these metrics beside the loss, and W&B or TensorBoard beside it.

    Raises:
        UserError: when TensorBoard is asked for and not installed.
    """
    loggers: list[Logger] = [MetricsCSV(folder / "metrics.csv", metrics)]
    if config.logger.name == "wandb":
        settings = config.to_dict()
        # the dashboard groups by it, "auto" would say nothing
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
