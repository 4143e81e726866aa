"""Further columns beside the predictions: calibrated uncertainties, and the distance from the training molecules."""

from __future__ import annotations

import logging

import numpy as np

from molgcn.calibration.columns import calibrated_columns
from molgcn.domain.distance import NAMES
from molgcn.files.column import Column
from molgcn.screening.ensemble import Ensemble

log = logging.getLogger(__name__)


def say_calibration(ensemble: Ensemble) -> None:
    """Log what the uncertainties were calibrated on, or warn that calibrations are left out."""
    if ensemble.calibration is not None:
        level = logging.WARNING if ensemble.calibration.approximate else logging.INFO
        log.log(level, "The columns of uncertainties are %s", ensemble.calibration.described)
    elif any(member.calibration is not None for member in ensemble.members):
        log.warning(
            "Each checkpoint's calibration is of the predictions of that model alone, and not of a mean: the columns that it adds are left "
            "out. Predict without dropout and with one checkpoint for them, or with all models of a run of training.ensemble that was "
            "calibrated"
        )


def names_beside(ensemble: Ensemble, domain: bool) -> list[str]:
    """Return the headers of :func:`columns_beside`."""
    no_rows = np.empty((0, ensemble.task.num_predictions))
    return [column.name for column in columns_beside(ensemble, no_rows, np.empty((0, len(NAMES))) if domain else None)]


def columns_beside(ensemble: Ensemble, predictions: np.ndarray, distance: np.ndarray | None) -> list[Column]:
    """Return the further columns of R rows.

    Args:
        ensemble: the models.
        predictions: [R, P], NaN where there is no prediction.
        distance: [R, 4], the distances from the training molecules, or None; see :func:`molgcn.domain.distance.distance_to_all`.
    """
    columns = []
    if ensemble.calibration is not None:
        columns += calibrated_columns(ensemble.calibration, ensemble.task, predictions, ensemble.digits)
    if distance is not None:
        columns += [Column(name, values) for name, values in zip(NAMES, distance.T, strict=True)]
    return columns
