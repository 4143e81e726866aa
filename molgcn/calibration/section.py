"""The content of the report's section about uncertainties: measures and pictures."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from molgcn.calibration.assessment import measures_of
from molgcn.calibration.calibration import Calibration, TargetCalibration
from molgcn.calibration.outputs import Numbers, Output, outputs_of
from molgcn.calibration.plots import confidence_picture, deviation_picture
from molgcn.report.uncertainty import Uncertainty
from molgcn.tasks.base import Task


def uncertainty_of(
    task: Task,
    calibration: Calibration | None,
    metrics: Mapping[str, float],
    part: str,
    predictions: np.ndarray,
    targets: np.ndarray,
) -> Uncertainty | None:
    """Return the content of the section, or None where there are no uncertainties.

    Args:
        task: the task of the model.
        calibration: the calibration of the model, or None.
        metrics: the metrics by "<part>/<metric>/<target>".
        part: the part that is shown.
        predictions: [M, P], the predictions for the molecules of that part.
        targets: [M, T], the true values of that part, NaN where missing.
    """
    measures = {name: found for name in task.names if (found := measures_of(metrics, part, name))}
    if not measures:
        return None
    fitted = [None] * len(task.names) if calibration is None else calibration.targets
    pictures = {}
    for name, output, true, target in zip(task.names, outputs_of(task, predictions), targets.T, fitted, strict=True):
        if (picture := _picture(output, true, target)) is not None:
            pictures[name] = picture
    return Uncertainty(
        "" if calibration is None else calibration.described,
        calibration is not None and calibration.approximate,
        calibration.alpha if calibration is not None and any(target.conformal is not None for target in calibration.targets) else None,
        measures,
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
