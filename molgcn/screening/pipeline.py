"""Predicts records, in order and in constant memory."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from molgcn.calibration.columns import prediction_columns
from molgcn.data.applicability import Contents
from molgcn.data.formats import Kind, Record
from molgcn.data.levels import Rows
from molgcn.domain.distance import NAMES
from molgcn.files.column import Column
from molgcn.screening.chunk import Chunk
from molgcn.screening.ensemble import Ensemble
from molgcn.screening.ready import Ready, prepare_records
from molgcn.training.inference import combined

NOT_FINITE = "the model's output is not a finite number"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Predicted(Chunk):
    """R rows with their predictions."""

    contents: Contents  # the elements and sizes of the molecules, counted
    # float64 [R, P], the columns of predictions, NaN where there is an error. With targets of atoms or bonds object [R, P], with an array
    # for each molecule in their columns
    values: np.ndarray
    deviation: np.ndarray | None  # float64 [R, P], the standard deviation over models and passes with dropout. None for a single pass
    predicted: list[Column]  # the columns of predictions and their deviations
    beside: list[Column]  # further columns; see :func:`molgcn.screening.pipeline.columns_of`


def predict_records(
    ensemble: Ensemble,
    records: Iterable[Record],
    kind: Kind,
    batch_size: int,
    num_workers: int | None,
    domain: Sequence[Path] = (),
    members: bool = False,
) -> Iterator[Predicted]:
    """Predict records, `batch_size` at a time, as :func:`molgcn.screening.ready.prepare_records` makes them ready.

    With `members` the predictions of every pass have columns of their own.
    """
    trees, bond_numbers = ensemble.tree_generators, ensemble.levels.bond > 0
    for ready in prepare_records(ensemble.inputs, records, kind, batch_size, num_workers, domain, trees, bond_numbers):
        yield _predicted(ensemble, ready, members)


def _predicted(ensemble: Ensemble, ready: Ready, members: bool) -> Predicted:
    errors, kept, count = dict(ready.errors), ready.kept, len(ready.records)
    passes, rows = np.empty((ensemble.num_passes, 0, ensemble.task.num_predictions)), None
    if ready.molecules is not None:
        passes, rows = ensemble.predict(ready.molecules, ready.start), Rows(ready.molecules, ensemble.levels)
        wrong = np.unique(rows.molecule[~np.isfinite(combined(ensemble.task, passes)[0]).all(axis=1)])
        errors |= dict.fromkeys(kept[wrong].tolist(), NOT_FINITE)
        right = np.setdiff1d(np.arange(len(kept)), wrong)
        passes, kept = passes[:, rows.at(right)], kept[right]
        if len(wrong):
            rows = Rows(ready.molecules[right], ensemble.levels) if len(right) else None
    values, deviation = combined(ensemble.task, passes)
    distance = None if ready.distance is None else ready.distance[kept]
    predicted, beside = (
        [column.spread(kept, count) for column in columns]
        for columns in columns_of(ensemble, values, deviation, distance, passes if members else None, rows)
    )

    def of_records(values: np.ndarray) -> np.ndarray:
        columns = columns_of(ensemble, values, None, rows=rows)[0]
        return np.stack([column.spread(kept, count).entries for column in columns], axis=1)

    matrices = of_records(values), None if deviation is None else of_records(deviation)
    return Predicted(ready.start, ready.records, ready.smiles, errors, ready.contents, *matrices, predicted, beside)


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
