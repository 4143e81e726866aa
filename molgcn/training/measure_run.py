"""Measure what a run has trained on the parts of its data, and compare that with baselines, intervals and thresholds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from lightning import Trainer

from molgcn.comparison.baselines import baselines_of
from molgcn.comparison.compare import chosen_thresholds, compare
from molgcn.config.run import Config
from molgcn.data.datamodule import MoleculeDataModule
from molgcn.metrics.comparison import Comparison
from molgcn.training.blending import blended_parts
from molgcn.training.calibrating import measured_uncertainties
from molgcn.training.checkpoint import RunCheckpoint
from molgcn.training.checkpoint_file import load_checkpoint
from molgcn.training.inference import Models
from molgcn.training.module import MoleculeModule
from molgcn.training.result import RunResult
from molgcn.training.throughput import Throughput


def measure_run(
    trainer: Trainer, module: MoleculeModule, data: MoleculeDataModule, checkpoint: RunCheckpoint, throughput: Throughput, folder: Path
) -> RunResult:
    """Measure every part with a run's best weights, which the module gets, after its training."""
    if checkpoint.best_path.exists():
        module.load_state_dict(load_checkpoint(checkpoint.best_path)["state_dict"])
    metrics: dict[str, float] = {}
    for part in data.dataset.parts:
        trainer.test(module, data.evaluation_loader(part), verbose=False)
        metrics |= {f"{part}/{key}": value for key, value in module.test_results.items()}
    validated, task = checkpoint.best_epoch is not None, module.task
    return RunResult(
        folder,
        best_loss=checkpoint.best_loss if validated else None,
        best_epoch=checkpoint.best_epoch + 1 if checkpoint.best_epoch is not None else None,
        epochs=trainer.fit_loop.epoch_progress.current.started,  # type: ignore[attr-defined]  # with an epoch that was cut short
        metrics=metrics,
        names=tuple(module.target_names),
        units=tuple(module.target_units),
        molecules_per_second=statistics.median(throughput.rates) if throughput.rates else None,
        task=task.name,
        tasks={name: part.name for part in task.parts for name in part.names},
        monitor=module.monitor.key,
        maximize=module.monitor.maximize,
        best_value=checkpoint.best_value,
        chosen=tuple(module.config.training.metrics or ()),
    )


def with_uncertainties(result: RunResult, models: Models) -> RunResult:
    """Return the results of a training with measures of the uncertainties that its model predicts on validation and test."""
    metrics = dict(result.metrics)
    for part in ("val", "test"):
        if len(models.data[0].splits[part]):
            metrics |= measured_uncertainties(models, part)
    return replace(result, metrics=metrics, calibrated="" if models.calibration is None else models.calibration.described)


def compare_models(models: Models, part: str, metrics: Mapping[str, float], config: Config, one_split: bool = True) -> Comparison:
    """Compare the metrics of what models predict together with baselines, and add intervals and metrics at chosen thresholds.

    Without one split no molecules are training or validation for all models, so that there are no baselines and no thresholds.
    """
    task, data, wanted = models.task, models.data[0], config.training.baseline
    predicted = models.predicted(part)
    baselines, thresholds = {}, {}
    if one_split:
        known = data.part("train") if wanted == "rf" else None
        baselines = baselines_of(wanted, task, models.modules[0].statistics, part, predicted.molecules, known, config.seed)
        if len(data.splits.get("val", ())):
            validation = models.predicted("val")
            thresholds = chosen_thresholds(task, validation.values, validation.targets)
    if models.blended:
        validated = any(len(one.splits.get("val", ())) for one in models.data)
        baselines |= blended_parts(models, [part, *(["val"] if validated and part == "test" else [])])
    resamples, molecule = config.training.bootstrap, predicted.molecule_of_row
    values, labels = predicted.values, predicted.labels
    return compare(task, metrics, part, values, labels, resamples, config.seed, baselines, thresholds, molecule)
