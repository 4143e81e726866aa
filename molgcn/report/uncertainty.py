"""The report's section about uncertainties: their measures, and whether they tell the errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from molgcn.calibration.assessment import TITLES
from molgcn.calibration.calibration import Calibration, TargetCalibration
from molgcn.calibration.outputs import Numbers, Output, outputs_of
from molgcn.report.uncertainty_plots import confidence_picture, deviation_picture
from molgcn.tasks.base import Task


@dataclass(frozen=True)
class Uncertainty:
    """What the section shows.

    Attributes:
        about: what the uncertainties were calibrated on, "" where they are as the network predicts them.
        approximate: whether that part has chosen the weights.
        missed: the share of molecules that intervals or sets may miss, or None.
        columns: titles of the measures.
        rows: each target's values of them.
        pictures: addresses of pictures, by target.
    """

    about: str
    approximate: bool
    missed: float | None
    columns: list[str]
    rows: dict[str, list[float]]
    pictures: dict[str, str]


def uncertainty_of(
    task: Task,
    calibration: Calibration | None,
    metrics: Mapping[str, float],
    part: str,
    predictions: np.ndarray,
    targets: np.ndarray,
) -> Uncertainty | None:
    """Return the section, None where there are no uncertainties.

    Args:
        task: of the model.
        calibration: of the model, or None.
        metrics: "<part>/<metric>/<target>".
        part: the one that is shown.
        predictions: [M, P] of its molecules.
        targets: their [M, T].
    """
    keys = {metric: [f"{part}/{metric}/{name}" for name in task.names] for metric in TITLES}
    there = [metric for metric in TITLES if all(key in metrics for key in keys[metric])]
    if not there:
        return None
    fitted = [None] * len(task.names) if calibration is None else calibration.targets
    pictures = {}
    for name, output, true, target in zip(task.names, outputs_of(task, predictions), targets.T, fitted, strict=True):
        if (picture := _picture(output, true, target)) is not None:
            pictures[name] = picture
    return Uncertainty(
        "" if calibration is None else calibration.described,
        calibration is not None and calibration.approximate,
        calibration.alpha if calibration is not None and "conformal_coverage" in there else None,
        [TITLES[metric] for metric in there],
        {name: [metrics[keys[metric][place]] for metric in there] for place, name in enumerate(task.names)},
        pictures,
    )


def _picture(output: Output, true: np.ndarray, target: TargetCalibration | None) -> str | None:
    known = ~np.isnan(true) & output.finite
    seen, true = output[known], true[known].astype(np.float64)
    if not len(true):
        return None
    if isinstance(seen, Numbers):
        return None if seen.std is None else deviation_picture(true - seen.values, seen.std, None if target is None else target.std(seen))
    return confidence_picture(true.astype(np.int64), seen.probabilities, None if target is None else target.probabilities(seen))
