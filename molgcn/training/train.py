"""Run one training, from a configuration to a folder of results."""

from __future__ import annotations

import gc
import logging
import statistics
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning import Callback, Trainer, seed_everything
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities import rank_zero_only
from lightning.pytorch.utilities.exceptions import SIGTERMException

from molgcn.comparison.forest import check_forest
from molgcn.config.run import Config
from molgcn.data.applicability import domain_of
from molgcn.data.components import num_components
from molgcn.data.datamodule import MoleculeDataModule
from molgcn.data.load import write_skipped
from molgcn.data.locks import claimed
from molgcn.data.splits.saved import save_split
from molgcn.errors import UserError
from molgcn.files.json_file import write_json
from molgcn.files.whole_file import remove_leftovers
from molgcn.metrics.comparison import Comparison
from molgcn.nn.batch_layout import batch_layout
from molgcn.nn.build import edge_channels_of, resolved_backend
from molgcn.process.signals import Terminated
from molgcn.tasks.choice import check_options, choose_task
from molgcn.tasks.registry import settled
from molgcn.training.calibrating import calibrate, check_calibration, with_uncertainties
from molgcn.training.checkpoint import RunCheckpoint
from molgcn.training.checkpoint_format import features_of
from molgcn.training.checkpoint_reader import load_checkpoint
from molgcn.training.compare_run import compare_run
from molgcn.training.compatible import check_goes_on, check_same_keys
from molgcn.training.domain_index import save_index
from molgcn.training.freezing import check_freeze
from molgcn.training.launches import KernelLaunches
from molgcn.training.loggers import build_loggers
from molgcn.training.metrics_csv import MetricsCSV
from molgcn.training.module import MoleculeModule
from molgcn.training.progress import EpochBar, EpochLine
from molgcn.training.provenance import provenance
from molgcn.training.restore import find_checkpoint
from molgcn.training.result import RunResult
from molgcn.training.resume import check_new, config_text, write_config
from molgcn.training.run_report import write_run_report
from molgcn.training.stopping import stopping_callbacks
from molgcn.training.throughput import Throughput
from molgcn.training.trained_on import save_trained_on
from molgcn.training.trainer import DOUBLE, build_trainer, check_validates
from molgcn.training.transfer import start_from
from molgcn.training.wandb_logger import Wandb

log = logging.getLogger(__name__)


def train(config: Config, folder: Path, watchers: Sequence[Callback] = ()) -> RunResult:
    """Train, test the best weights and write the results into `folder`.

    The folder gets `config.yaml`, `provenance.json`, `splits.json`, `training_molecules.npy`, `skipped.csv` (if rows were left out),
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
    """Keep other processes from training in `folder`, and remove the temporary files that killed processes left there.

    Raises:
        UserError: If another process trains there.
    """
    with claimed(folder, rank_zero_only.rank == 0) as free:  # type: ignore[attr-defined]
        if not free:
            raise UserError(f"Another process is training in {folder}. Wait for its end, or choose another folder with hydra.run.dir=.")
        if rank_zero_only.rank == 0:  # type: ignore[attr-defined]
            for place in (folder, folder / "checkpoints"):
                remove_leftovers(place)
        yield


def _train(config: Config, folder: Path, watchers: Sequence[Callback]) -> RunResult:
    gc.collect()  # reference cycles keep an earlier run of this process, and its memory on the device, alive
    quieten()
    seed_everything(config.seed, workers=True, verbose=False)
    check_validates(config)
    config = check_freeze(config)
    backend = resolved_backend(config.model, config.backend, len(config.dataset.smiles_columns))
    if config.trainer.get("sync_batchnorm") and (backend == "fused" or not torch.cuda.is_available()):
        raise UserError(
            "trainer.sync_batchnorm=true needs backend=pyg and GPUs, or backend=reference: backend=fused takes each device's own "
            "statistics. Leave it out, or use model.norm=layer, which needs none."
        )
    checkpoint = RunCheckpoint(folder / "checkpoints", config.training.checkpoint_seconds)
    resumed = None
    if config.resume is None:
        check_new(folder)
    else:
        config = check_same_keys(config, folder)
        resumed = load_checkpoint(checkpoint.last_path)
        config = _with_features_of(resumed, checkpoint.last_path, config)
    choose_layout = partial(batch_layout, config.model, backend, config.backend.strategy)
    saved = None if resumed is None else folder / "splits.json"  # another version might draw another split
    data = MoleculeDataModule(config.dataset, config.loader, backend, config.seed, choose_layout, saved)
    check_validates(config, has_part="val" in data.dataset.parts)
    module = build_module(config, data)
    config = module.config
    if config.training.baseline == "rf":
        check_forest(data.part("train"))
    if config.trainer.get("precision") in DOUBLE:
        module.double()  # Lightning does so only after it has restored the weights
    if config.ckpt_path is not None and resumed is None:
        start_from(module, find_checkpoint(config.ckpt_path, "ckpt_path"))
    before = (folder / "config.yaml").read_text("utf-8") if resumed is not None else None
    if resumed is not None:
        check_goes_on(module, data.dataset.data_hash, resumed, folder)
    check_calibration(config.training, module.task, data.dataset)
    _write_inputs(config, folder, data, fresh=resumed is None)

    launches = KernelLaunches()
    throughput = Throughput(launches)
    loggers = build_loggers(config, folder, [*module.task.keys("val", module.monitor.measured), module.monitor.key])
    failed = True
    try:
        stopping = stopping_callbacks(config.callbacks, module.monitor)
        callbacks: list[Callback] = [launches, throughput, EpochLine(), *stopping, checkpoint, *watchers]
        options = _trainer_options(config)
        if options.get("enable_progress_bar") is not False:
            callbacks.append(EpochBar())
        trainer = build_trainer(options, callbacks, loggers, folder)
        if resumed is not None:
            metrics_csv = loggers[0]
            assert isinstance(metrics_csv, MetricsCSV)
            metrics_csv.truncate(resumed["metrics_csv_size"])
        _fit(trainer, module, data, checkpoint.last_path if resumed else None)
        result, predictions = _evaluate(trainer, module, data, checkpoint, throughput, folder)
        if trainer.is_global_zero:
            calibrate(module, data.dataset, [checkpoint.best_path, checkpoint.last_path])
            result = with_uncertainties(result, module, data.dataset)
            save_index(config, data.part("train"), folder, [checkpoint.best_path, checkpoint.last_path])
        if config.training.report and trainer.is_global_zero:
            write_run_report(result, predictions, module, data, loggers)
        failed = False
    except Exception:
        if before is not None:  # keys with which the run could not go on must not block the next resume=
            rank_zero_only(write_config)(before, folder)
        raise
    finally:
        for logger in loggers:
            if isinstance(logger, Wandb):
                logger.finish(failed)
    return result


def _fit(trainer: Trainer, module: MoleculeModule, data: MoleculeDataModule, last: Path | None) -> None:
    try:
        trainer.fit(module, datamodule=data, ckpt_path=None if last is None else str(last), weights_only=True)
    except SystemExit as error:
        if isinstance(error.__context__, KeyboardInterrupt):  # Lightning turns it into an exit with code 1
            raise KeyboardInterrupt from None
        raise
    except (MisconfigurationException, ValueError) as error:
        if isinstance(error, ValueError) and "`val_check_interval`" not in str(error):  # an interval of more batches than there are
            raise
        raise UserError(f"Lightning's Trainer refuses an option under trainer.*: {error}") from error


def quieten() -> None:
    """Silence Lightning's messages about itself, and its warnings about choices that this program makes for the user."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    logging.getLogger("lightning.fabric").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", ".*does not have many workers.*")
    warnings.filterwarnings("ignore", ".*smaller than the logging interval.*")
    warnings.filterwarnings("ignore", ".*module.s. in eval mode at the start of training.*")
    warnings.filterwarnings("ignore", ".*LeafSpec.*is deprecated.*")
    warnings.filterwarnings("ignore", ".*Total length of `list` across ranks is zero.*")  # there is no validation part


def build_module(config: Config, data: MoleculeDataModule) -> MoleculeModule:
    """Return the untrained module of a configuration, sized and scaled for the data.

    In the module's own configuration, what is `auto` of the task has the value that the data decided.

    Raises:
        UserError: If the task or an option does not fit the data.
    """
    molecules = data.dataset.molecules
    task = choose_task(config.task, data.dataset, config.dataset)
    config = settled(config, task)
    check_options(task, config, molecules)
    torch.manual_seed(config.seed)  # the weights depend on the seed alone, not on what loading drew
    module = MoleculeModule(
        config,
        in_channels=molecules.num_features,
        task=task,
        statistics=task.statistics_of(molecules.targets[data.dataset.splits["train"]]),
        features=molecules.features,
        trained_on=domain_of(data.dataset.trained_on),
        edge_channels=edge_channels_of(config.model, molecules),
        descriptor_names=molecules.descriptor_names,
        num_components=num_components(molecules),
    )
    module.fit_descriptors(data.part("train").descriptors)
    return module


def _trainer_options(config: Config) -> dict[str, Any]:
    options = dict(config.trainer)
    if sys.stdout is None or not sys.stdout.isatty():
        options["enable_progress_bar"] = False  # one line per epoch is printed either way
    return options


def _with_features_of(resumed: dict[str, Any], path: Path, config: Config) -> Config:
    """Return the configuration with the version of the featuriser with which the run began."""
    features, saved = config.dataset.features, features_of(resumed["molgcn"], path)
    if saved is None or features not in (None, resumed["molgcn"]["features"]):
        return config
    return replace(config, dataset=replace(config.dataset, features=saved))


@rank_zero_only
def _write_inputs(config: Config, folder: Path, data: MoleculeDataModule, fresh: bool) -> None:
    """Write configuration and training molecules, and for a fresh run also split, skipped rows and provenance."""
    folder.mkdir(parents=True, exist_ok=True)
    write_config(config_text(config), folder)
    save_trained_on(folder, data.part("train"))
    if fresh:
        save_split(folder / "splits.json", data.dataset.splits, data.dataset.molecules.rows)
        if data.dataset.molecules.skipped:
            write_skipped(folder / "skipped.csv", data.dataset.molecules.skipped, data.dataset.molecules.files)
        (folder / "metrics.csv").unlink(missing_ok=True)  # left by a run that was killed before its first checkpoint
        device = torch.device("cuda" if torch.cuda.is_available() and config.trainer.get("accelerator") != "cpu" else "cpu")
        write_json(folder / "provenance.json", provenance(data.dataset.data_hash, device, config.seed))


def _evaluate(
    trainer: Trainer, module: MoleculeModule, data: MoleculeDataModule, checkpoint: RunCheckpoint, throughput: Throughput, folder: Path
) -> tuple[RunResult, np.ndarray]:
    """Return the results and the predictions [M, P] of the last part, which are empty on other processes than the first."""
    if checkpoint.best_path.exists():
        module.load_state_dict(load_checkpoint(checkpoint.best_path)["state_dict"])
    metrics: dict[str, float] = {}
    for part in data.dataset.parts:
        trainer.test(module, data.evaluation_loader(part), verbose=False)
        metrics |= {f"{part}/{key}": value for key, value in module.test_results.items()}
    comparison, predictions = (
        compare_run(module, data, metrics, data.dataset.parts[-1]) if trainer.is_global_zero else (Comparison(), np.empty(0))
    )
    rate = statistics.median(throughput.rates) if throughput.rates else None
    names, units = tuple(module.target_names), tuple(module.target_units)
    epoch, loss = (None, None) if checkpoint.best_epoch is None else (checkpoint.best_epoch + 1, checkpoint.best_loss)
    chosen = module.monitor.key, module.monitor.maximize, checkpoint.best_value
    # counts an epoch that was cut short, too
    epochs = trainer.fit_loop.epoch_progress.current.started  # type: ignore[attr-defined]
    task = module.task
    tasks = {name: part.name for part in task.parts for name in part.names}
    result = RunResult(folder, loss, epoch, epochs, metrics, names, units, rate, task.name, tasks, *chosen, comparison=comparison)
    return result, predictions
