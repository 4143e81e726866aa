"""Run one training, from a configuration to a folder of results."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from lightning import Callback, Trainer
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only
from lightning.pytorch.utilities.exceptions import SIGTERMException

from molgcn.config.run import Config
from molgcn.data.datamodule import MoleculeDataModule
from molgcn.data.locks import claimed
from molgcn.errors import UserError
from molgcn.files.whole_file import remove_leftovers
from molgcn.process.signals import Terminated
from molgcn.training.blending import fit_blend
from molgcn.training.build import build_data, build_module, check_options, load_weights, prepare_process, start_or_resume
from molgcn.training.calibrating import calibrated, measured_parts, store_calibration
from molgcn.training.checkpoint import RunCheckpoint
from molgcn.training.inference import Models
from molgcn.training.inputs import inputs_written
from molgcn.training.loggers import MetricsCSV, loggers_of_run
from molgcn.training.measure_run import compare_models, measure_run, with_uncertainties
from molgcn.training.module import MoleculeModule
from molgcn.training.progress import EpochBar, EpochLine
from molgcn.training.result import RunResult
from molgcn.training.run_report import write_run_report
from molgcn.training.stopping import stopping_callbacks
from molgcn.training.throughput import KernelLaunches, Throughput
from molgcn.training.trained_on import save_index
from molgcn.training.trainer import build_trainer, validates
from molgcn.training.wandb_logger import Wandb


def train(config: Config, folder: Path, watchers: Sequence[Callback] = ()) -> RunResult:
    """Train, test the best weights and write the results into `folder`.

    The folder gets `config.yaml`, `provenance.json`, `splits.json`, `training_hashes.npy`, `skipped.csv` (if rows were left out),
    `checkpoints/best.ckpt` and `last.ckpt`, `metrics.csv`, and with `training.report` also `report.html`, `predictions_test.csv`,
    `learning_curve.png` and `parity.png` or `classes.png`. Without a validation part the last weights are the model, and there is no
    `best.ckpt`. Without a test part the report is about validation, and without that too about training.

    Args:
        config: the run's configuration. With `config.resume` the run in `folder` goes on from its `last.ckpt`.
        folder: the run's folder.
        watchers: further callbacks of the Trainer.

    Returns:
        The results. Only on the first process do they hold comparisons and measures of uncertainties.

    Raises:
        UserError: If there is a mistake in the configuration or its data, the training diverges, or another process trains in the folder.
    """
    with alone_in(folder):
        try:
            return _train(config, folder, watchers)
        except SIGTERMException:  # what the Trainer raises on SIGTERM; it would end the program with exit code 0
            raise Terminated from None


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keep other processes from training in `folder`, which is an error, and remove temporary files that killed processes left there."""
    with claimed(folder, rank_zero_only.rank == 0) as free:  # type: ignore[attr-defined]
        if not free:
            raise UserError(f"Another process is training in {folder}. Wait for its end, or choose another folder with hydra.run.dir=.")
        if rank_zero_only.rank == 0:  # type: ignore[attr-defined]
            for place in (folder, folder / "checkpoints"):
                remove_leftovers(place)
        yield


def _train(config: Config, folder: Path, watchers: Sequence[Callback]) -> RunResult:
    prepare_process(config.seed)
    checkpoint = RunCheckpoint(folder / "checkpoints", config.training.checkpoint_seconds)
    config, resumed = start_or_resume(check_options(config), folder, checkpoint.last_path)
    data = build_data(config, None if resumed is None else folder / "splits.json")
    module = build_module(config, data)
    config = module.config
    load_weights(module, data, folder, resumed)
    with inputs_written(config, folder, data, fresh=resumed is None), loggers_of_run(module, folder) as loggers:
        launches = KernelLaunches()
        throughput = Throughput(launches)
        stopping = stopping_callbacks(config.callbacks, module.monitor, validates(config, "val" in data.dataset.parts))
        options = {**config.trainer}
        if sys.stdout is None or not sys.stdout.isatty():
            options["enable_progress_bar"] = False  # one line per epoch is printed either way
        bar = [] if options.get("enable_progress_bar") is False else [EpochBar()]
        callbacks = [launches, throughput, EpochLine(), *stopping, checkpoint, *watchers, *bar]
        trainer = build_trainer(options, callbacks, loggers, folder)

        _fit(trainer, module, data, checkpoint.last_path, resumed)
        result = measure_run(trainer, module, data, checkpoint, throughput, folder)
        if trainer.is_global_zero:
            checkpoints = [checkpoint.best_path, checkpoint.last_path]
            fit_blend(module, data.dataset, folder)
            models = calibrated(Models([module], [data.dataset]), config.training)
            if models.blended:
                result = replace(result, metrics=measured_parts(models, data.dataset.parts))
            if models.calibration is not None:
                store_calibration(models.calibration, module, checkpoints)
            comparison = compare_models(models, data.dataset.parts[-1], result.metrics, config)
            result = replace(with_uncertainties(result, models), comparison=comparison)
            save_index(config, data.part("train"), folder, checkpoints)
            if config.training.report:
                _write_report(result, models, config, loggers)
    return result


def _fit(trainer: Trainer, module: MoleculeModule, data: MoleculeDataModule, last: Path, resumed: dict[str, Any] | None) -> None:
    if resumed is not None:
        for logger in trainer.loggers:
            if isinstance(logger, MetricsCSV):
                logger.truncate(resumed["metrics_csv_size"])
    try:
        trainer.fit(module, datamodule=data, ckpt_path=None if resumed is None else str(last), weights_only=True)
    except SystemExit as error:
        if isinstance(error.__context__, KeyboardInterrupt):  # Lightning turns it into an exit with code 1
            raise KeyboardInterrupt from None
        raise
    except (MisconfigurationException, ValueError) as error:
        if isinstance(error, ValueError) and "`val_check_interval`" not in str(error):  # an interval of more batches than there are
            raise
        raise UserError(f"Lightning's Trainer refuses an option under trainer.*: {error}") from error


def _write_report(result: RunResult, models: Models, config: Config, loggers: Sequence[Logger]) -> None:
    from molgcn.report.plots import plot_learning_curve  # Matplotlib takes long to import

    folder, data = result.folder, models.data[0]
    curve, label = folder / "learning_curve.png", models.task.loss_label(config.training)
    plot_learning_curve(folder / "metrics.csv", curve, label, result.monitor, result.maximize)
    parts = {part: data.part(part) for part in data.parts}
    pictures = write_run_report(models, folder, parts, result.metrics, result.comparison, {"learning curve": curve})
    for logger in loggers:
        if isinstance(logger, Wandb):
            logger.log_images({**pictures, "learning_curve": curve})
            logger.log_summary(result.metrics)
