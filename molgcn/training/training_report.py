"""Write the report of a single training and send its pictures to W&B; the only report that needs Lightning."""

from __future__ import annotations

from collections.abc import Sequence

from lightning.pytorch.loggers import Logger

from molgcn.config.run import Config
from molgcn.training.inference import Models
from molgcn.training.result import RunResult
from molgcn.training.run_report import write_run_report
from molgcn.training.wandb_logger import Wandb


def report_training(result: RunResult, models: Models, config: Config, loggers: Sequence[Logger]) -> None:
    """Write the report of a single training with its learning curve, and send the pictures to W&B."""
    from molgcn.report.plots import plot_learning_curve  # Matplotlib and pandas take long to import

    folder, data = result.folder, models.data[0]
    curve, label = folder / "learning_curve.png", models.task.loss_label(config.training)
    plot_learning_curve(folder / "metrics.csv", curve, label, result.monitor, result.maximize)
    parts = {part: data.part(part) for part in data.parts}
    pictures = write_run_report(models, folder, parts, result.metrics, result.comparison, {"learning curve": curve})
    for logger in loggers:
        if isinstance(logger, Wandb):
            logger.log_images({**pictures, "learning_curve": curve})
            logger.log_summary(result.metrics)
