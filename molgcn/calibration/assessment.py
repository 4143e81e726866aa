"""How honest a model's uncertainties are: the measures of every target, as they stand in results and reports."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from molgcn.calibration.calibration import Calibration, TargetCalibration
from molgcn.calibration.confidence import calibration_error
from molgcn.calibration.deviations import deviation_metrics
from molgcn.calibration.outputs import Classes, Numbers, outputs_of
from molgcn.class_metrics import class_metrics
from molgcn.errors import shown
from molgcn.metrics import error_text
from molgcn.tasks.base import Task

TITLES = {
    "nll": "NLL",
    "miscalibration_area": "miscalibration area",
    "ence": "ENCE",
    "ece": "ECE",
    "calibrated_nll": "calibrated NLL",
    "calibrated_miscalibration_area": "calibrated miscalibration area",
    "calibrated_ence": "calibrated ENCE",
    "uncertainty_spearman": "Spearman of |error| and deviation",
    "calibrated_ece": "calibrated ECE",
    "calibrated_brier": "calibrated Brier",
    "conformal_coverage": "conformal coverage",
    "conformal_width": "mean width",
    "conformal_size": "mean size of set",
}


def assess(task: Task, calibration: Calibration | None, predictions: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    """Measure the uncertainties of predictions, and what calibration makes of them.

    Args:
        task: of the model.
        calibration: of the model; without one only standard deviations that it predicts itself are measured.
        predictions: [M, P].
        targets: [M, T], NaN where missing.

    Returns:
        Values by "<metric>/<target>", NaN where undefined; :data:`TITLES` has the metrics. Nothing where there are no uncertainties.
    """
    fitted = [None] * len(task.names) if calibration is None else calibration.targets
    values: dict[str, float] = {}
    for name, output, true, target in zip(task.names, outputs_of(task, predictions), targets.T, fitted, strict=True):
        known = ~np.isnan(true) & output.finite
        seen, true = output[known], true[known].astype(np.float64)
        measured = _of_numbers(seen, true, target) if isinstance(seen, Numbers) else _of_classes(seen, true, target)
        values |= {f"{metric}/{name}": value for metric, value in measured.items()}
    return values


def _of_numbers(output: Numbers, true: np.ndarray, target: TargetCalibration | None) -> dict[str, float]:
    error = true - output.values
    values = {} if output.std is None else deviation_metrics(error, output.std)
    if target is not None and (std := target.std(output)) is not None:
        calibrated = deviation_metrics(error, std)
        del calibrated["uncertainty_spearman"]  # a factor changes no rank
        values |= {f"calibrated_{metric}": value for metric, value in calibrated.items()}
    if target is not None and target.conformal is not None:
        lower, upper = target.conformal.bounds(output).T
        values["conformal_coverage"] = _mean((lower <= true) & (true <= upper))
        values["conformal_width"] = _mean(upper - lower)
    return values


def _of_classes(output: Classes, true: np.ndarray, target: TargetCalibration | None) -> dict[str, float]:
    if target is None:
        return {}
    labels = true.astype(np.int64)
    values = {"ece": calibration_error(labels, output.probabilities)}
    probabilities = target.probabilities(output)
    if probabilities is not None:
        values["calibrated_ece"] = calibration_error(labels, probabilities)
        of_metric = probabilities[:, 1] if probabilities.shape[1] == 2 else probabilities
        values["calibrated_brier"] = class_metrics(true, of_metric)["brier"]
    if target.conformal is not None:
        members = target.conformal.members(output)
        values["conformal_coverage"] = _mean(members[np.arange(len(labels)), labels])
        values["conformal_size"] = _mean(members.sum(axis=1))
    return values


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else math.nan


def print_assessment(console: Console, part: str, calibrated: str, names: Sequence[str], metrics: Mapping[str, float]) -> None:
    """Print one row a target of a part's values in `metrics`, "<part>/<metric>/<target>", if there are any, and what calibrated them."""
    there = [metric for metric in TITLES if f"{part}/{metric}/{names[0]}" in metrics]
    if not there:
        return
    table = Table(title=f"{part} uncertainty", title_justify="left")
    table.add_column("target")
    for metric in there:
        table.add_column(TITLES[metric], justify="right")
    for name in names:
        table.add_row(escape(shown(name)), *(error_text(metrics.get(f"{part}/{metric}/{name}", math.nan)) for metric in there))
    console.print(table)
    if calibrated:
        console.print(f"The uncertainties are {calibrated}", soft_wrap=True, highlight=False)
