"""The columns of predicted rows: predictions, and beside them calibrated uncertainties and the distance from the training molecules."""

from __future__ import annotations

import logging

import numpy as np

from molgcn.calibration.columns import prediction_columns
from molgcn.data.levels import Rows
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
            "out. Predict without dropout and with one checkpoint for them, or with all models of a run whose mean was calibrated, by "
            "training.ensemble or molgcn.calibrate"
        )


def no_columns(ensemble: Ensemble, domain: bool, members: bool) -> tuple[list[Column], list[Column]]:
    """Return the columns of no rows, which have the headers of :func:`columns_of`."""
    if members:
        ensemble.check_several()
    passes = np.empty((ensemble.num_passes, 0, ensemble.task.num_predictions))
    distance = np.empty((0, len(NAMES))) if domain else None
    return columns_of(ensemble, passes[0], passes[0] if len(passes) > 1 else None, distance, passes if members else None)


def columns_of(
    ensemble: Ensemble,
    predictions: np.ndarray,
    deviation: np.ndarray | None,
    distance: np.ndarray | None = None,
    passes: np.ndarray | None = None,
    rows: Rows | None = None,
) -> tuple[list[Column], list[Column]]:
    """Return the columns of predictions of R rows, and further columns.

    Predictions are [R, P], NaN where there is none, with their deviations [R, P] over several passes and distances from the training
    molecules [R, 4] (:func:`molgcn.domain.distance.distance_to_all`), or None. `passes` are the predictions [N, R, P] of each pass where
    they have columns of their own. `rows` are those of the predictions where atoms or bonds have targets.
    """
    each = None if passes is None else ensemble.named(passes)
    predicted, beside = prediction_columns(ensemble.task, predictions, deviation, ensemble.calibration, ensemble.digits, each, rows)
    if distance is not None:
        beside += [Column(name, values) for name, values in zip(NAMES, distance.T, strict=True)]
    return [column for columns in predicted for column in columns], beside
