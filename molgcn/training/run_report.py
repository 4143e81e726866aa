"""Write the report of a training run when it ends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from lightning.pytorch.loggers import Logger

from molgcn.calibration.columns import prediction_columns
from molgcn.data.datamodule import MoleculeDataModule
from molgcn.data.label_columns import measured
from molgcn.report.plots import plot_learning_curve
from molgcn.tasks.predictions_csv import write_predictions
from molgcn.training.module import MoleculeModule
from molgcn.training.report_subject import assemble_subject
from molgcn.training.result import RunResult
from molgcn.training.wandb_logger import Wandb


def write_run_report(
    result: RunResult, predictions: np.ndarray, module: MoleculeModule, data: MoleculeDataModule, loggers: Sequence[Logger]
) -> None:
    """Write page, pictures and predictions of a run's last part into its folder, and send the pictures to W&B.

    Args:
        result: the run's results.
        predictions: [M, P], the predictions of the last part's molecules.
        module: the trained module, with the run's configuration.
        data: the run's data module.
        loggers: the run's loggers.
    """
    parts, folder = data.dataset.parts, result.folder
    molecules = data.part(parts[-1])
    task = module.task
    columns = prediction_columns(task, predictions, None, module.calibration, module.target_digits)
    write_predictions(folder / f"predictions_{parts[-1]}.csv", task, molecules, *columns)
    curve, label = folder / "learning_curve.png", task.loss_label(module.config.training)
    plot_learning_curve(folder / "metrics.csv", curve, label, result.monitor, result.maximize)
    pictures = task.pictures(measured(molecules).targets, predictions, folder)
    subject = assemble_subject(
        module,
        name=folder.resolve().name,
        source=data.dataset.title,
        data_hash=data.dataset.data_hash,
        where=folder,
        parts={part: data.part(part) for part in parts},
        part=parts[-1],
        predictions=predictions,
        metrics=result.metrics,
        comparison=result.comparison,
        calibration=module.calibration,
        pictures={"learning curve": folder / "learning_curve.png"},
    )
    task.write_report(folder / "report.html", subject)
    for logger in loggers:
        if isinstance(logger, Wandb):
            logger.log_images({**pictures, "learning_curve": curve})
            logger.log_summary(result.metrics)
