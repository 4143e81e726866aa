"""Measure a trained network on the parts of its data."""

from __future__ import annotations

import statistics
from pathlib import Path

import numpy as np
from lightning import Trainer

from molgcn.data.datamodule import MoleculeDataModule
from molgcn.metrics.comparison import Comparison
from molgcn.training.checkpoint import RunCheckpoint
from molgcn.training.checkpoint_reader import load_checkpoint
from molgcn.training.compare_run import compare_run
from molgcn.training.module import MoleculeModule
from molgcn.training.result import RunResult
from molgcn.training.throughput import Throughput


def measure_run(
    trainer: Trainer, module: MoleculeModule, data: MoleculeDataModule, checkpoint: RunCheckpoint, throughput: Throughput, folder: Path
) -> tuple[RunResult, np.ndarray]:
    """Measure every part with a run's best weights, and compare the last part with baselines.

    Args:
        trainer: The Trainer after training.
        module: The trained module, which gets the best weights.
        data: The run's data module.
        checkpoint: The callback that knows the best epoch.
        throughput: The callback that knows the rates of the epochs.
        folder: The run's folder.

    Returns:
        The results, and the predictions [M, P] of the last part, which are empty on other processes than the first.
    """
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
