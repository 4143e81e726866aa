"""The measures of a model's uncertainties, target by target, as results and reports show them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from molgcn.calibration.calibration import Calibration, TargetCalibration
from molgcn.calibration.measures import calibration_error, deviation_metrics
from molgcn.calibration.outputs import Classes, Numbers, outputs_of
from molgcn.errors import shown
from molgcn.metrics import error_text
from molgcn.metrics.classes import class_metrics
from molgcn.process.tables import print_table
from molgcn.tasks.base import Task

MEASURES = {
    "nll": "NLL",
    "miscalibration_area": "miscalibration area",
    "ence": "ENCE",
    "uncertainty_spearman": "Spearman",
    "ece": "ECE",
    "brier": "Brier",
    "conformal_coverage": "coverage",
    "conformal_width": "width",
    "conformal_size": "set size",
}
_CALIBRATED = "calibrated_"  # prefix of metrics of calibrated uncertainties
_CONFORMAL = "conformal_"  # prefix of metrics that exist for calibrated uncertainties only
_ALWAYS = ("miscalibration_area", "ece", "conformal_coverage")  # any uncertainties give at least one of these


def assess(task: Task, calibration: Calibration | None, predictions: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    """Measure the uncertainties of predictions [M, P] before and after calibration, from true values [M, T], NaN where missing.

    Returned are the metrics of :data:`MEASURES` by "<metric>/<target>", NaN where undefined, and those of calibrated uncertainties by
    "calibrated_<metric>/<target>". Without calibration only standard deviations that the model predicts are measured. Nothing is returned
    where there are no uncertainties.
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
        del calibrated["uncertainty_spearman"]  # multiplying by a factor does not change ranks
        values |= {_CALIBRATED + metric: value for metric, value in calibrated.items()}
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
        values[_CALIBRATED + "ece"] = calibration_error(labels, probabilities)
        of_metric = probabilities[:, 1] if probabilities.shape[1] == 2 else probabilities
        values[_CALIBRATED + "brier"] = class_metrics(true, of_metric)["brier"]
    if target.conformal is not None:
        members = target.conformal.members(output)
        values["conformal_coverage"] = _mean(members[np.arange(len(labels)), labels])
        values["conformal_size"] = _mean(members.sum(axis=1))
    return values


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else math.nan


def measures_of(metrics: Mapping[str, float], part: str, name: str) -> dict[str, tuple[float, float]]:
    """Return each measure of a target in a part before and after calibration, by its title, NaN where it was not measured.

    The dict is empty where there are no uncertainties.
    """
    if not any(f"{part}/{metric}/{name}" in metrics for metric in _ALWAYS):
        return {}
    found = {}
    for metric, title in MEASURES.items():
        pair = [metrics.get(f"{part}/{prefix}{metric}/{name}") for prefix in ("", _CALIBRATED)]
        if pair != [None, None]:
            own, calibrated = (math.nan if value is None else value for value in pair)
            found[title] = (math.nan, own) if metric.startswith(_CONFORMAL) else (own, calibrated)
    return found


def print_assessment(console: Console, part: str, calibrated: str, names: Sequence[str], metrics: Mapping[str, float]) -> None:
    """Print the measures of a part as a table with one row per target, or nothing where there are none.

    A cell shows the value after calibration where there is one, and else the value before. `calibrated` says what the uncertainties were
    calibrated on, and is "" where they are not.
    """
    rows = {name: measures_of(metrics, part, name) for name in names}
    titles = dict.fromkeys(title for measures in rows.values() for title in measures)
    if not titles:
        return
    table = Table(title=f"{part} uncertainty", title_justify="left")
    table.add_column("target")
    for title in titles:
        table.add_column(title, justify="right")
    for name, measures in rows.items():
        pairs = [measures.get(title, (math.nan, math.nan)) for title in titles]
        table.add_row(escape(shown(name)), *(error_text(own if math.isnan(new) else new) for own, new in pairs))
    print_table(console, table)
    if calibrated:
        console.print(f"The uncertainties are {calibrated}", soft_wrap=True, highlight=False)
