"""Combine the results of a run's members: means and standard deviations over splits, or the metrics of an ensemble."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
from lightning.pytorch.utilities import rank_zero_only

from molgcn.calibration.assessment import assess
from molgcn.config.run import Config
from molgcn.data.label_columns import measured
from molgcn.metrics.comparison import Comparison
from molgcn.replicates.compare_models import compare_models
from molgcn.replicates.overlap import report_overlap
from molgcn.replicates.predictions import Models, load_models
from molgcn.replicates.report import write_report
from molgcn.replicates.summary import Summary
from molgcn.training.calibrating import fit_calibration
from molgcn.training.joint_calibration import save_joint_calibration
from molgcn.training.members import trainings_of
from molgcn.training.result import RunResult


def combine(config: Config, folder: Path, results: Mapping[str, RunResult], ensemble: bool) -> Summary:
    """Combine the results of a run's members, and with `training.report` write the files of its report.

    Args:
        config: the run's configuration.
        folder: the run's folder.
        results: the results of each member, by its name.
        ensemble: whether members are models of the same split, which predict together.
    """
    members = {name: result.metrics for name, result in results.items()}
    first = next(iter(results.values()))
    alike = {one.name: getattr(first, one.name) for one in fields(RunResult)}  # targets and tasks
    summed_up = {
        "folder": folder,
        "best_loss": _or_none(_mean(result.best_loss for result in results.values())),
        "best_value": _or_none(_mean(result.best_value for result in results.values())),
        "best_epoch": None,
        "epochs": sum(result.epochs for result in results.values()),
        "metrics": {key: _mean(metrics[key] for metrics in members.values()) for key in first.metrics},
        "molecules_per_second": _or_none(_mean(result.molecules_per_second for result in results.values())),
        "comparison": Comparison(),  # each member has its own
        "deviations": {} if ensemble else {key: _deviation(metrics[key] for metrics in members.values()) for key in first.metrics},
    }
    summary = Summary(**alike | summed_up, members=members)
    first_process = rank_zero_only.rank == 0  # type: ignore[attr-defined]
    if first_process and not ensemble and config.dataset.split != "cv" and config.dataset.test_path is None:
        report_overlap([trainings_of(folder / name)[0] for name in results], summary.parts[-1])
    if first_process and (ensemble or config.training.report):
        models = load_models(config, folder)
        if ensemble:
            models = _calibrated(models, config)
            save_joint_calibration(folder, models.calibration, models.checkpoints)
            metrics = _measured(models, summary, config.dataset.batch_size)
            calibrated = "" if models.calibration is None else models.calibration.described
            comparison = compare_models(models, summary.parts[-1], metrics, config, one_split=True)
            summary = replace(summary, metrics=metrics, calibrated=calibrated, comparison=comparison)
        if config.training.report:
            write_report(summary, models, config)
    return summary


def _calibrated(models: Models, config: Config) -> Models:
    """Return models of one split with the calibration of their mean prediction that the configuration asks for."""

    def predicted(part: str) -> tuple[np.ndarray, np.ndarray]:
        found, predictions = models.average(part, config.dataset.batch_size)
        return predictions, measured(models.molecules[found]).targets

    return replace(models, calibration=fit_calibration(config.training, models.task, models.splits[0], predicted))


def _measured(models: Models, summary: Summary, batch_size: int) -> dict[str, float]:
    """Return the metrics of the models' mean prediction on every part that the members were measured on."""
    metrics: dict[str, float] = {}
    for part in summary.parts:
        found, predictions = models.average(part, batch_size)
        targets = measured(models.molecules[found]).targets
        values = models.task.measure(predictions, targets)
        if part != "train":  # uncertainties do not describe the errors there, which are smaller than elsewhere
            values |= assess(models.task, models.calibration, predictions, targets)
        metrics |= {f"{part}/{key}": value for key, value in values.items()}
    return metrics


def _mean(values: Iterable[float | None]) -> float:
    """Return the mean of the values that are neither None nor NaN; NaN where there are none."""
    known = _known(values)
    return statistics.fmean(known) if known else math.nan


def _deviation(values: Iterable[float | None]) -> float:
    """Return the sample standard deviation (n - 1) of the values that are neither None nor NaN.

    It is NaN where there are fewer than two or one is infinite, as an interval's width is with too few molecules to calibrate on.
    """
    known = _known(values)
    return statistics.stdev(known) if len(known) > 1 and all(map(math.isfinite, known)) else math.nan


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None and not math.isnan(value)]


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value
