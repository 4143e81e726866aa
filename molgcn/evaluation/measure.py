"""Predict and measure the parts of a data set, and write the predictions of each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from molgcn.calibration.assessment import assess
from molgcn.calibration.columns import prediction_columns, write_predictions
from molgcn.data.applicability import Contents, contents_of, warn_of_extrapolation
from molgcn.data.label_columns import measured, metric_labels
from molgcn.data.levels import Rows
from molgcn.data.packed import PackedMolecules
from molgcn.evaluation.data import EvaluationData
from molgcn.screening.ensemble import Ensemble
from molgcn.training.inference import Of, combined, predict_molecules


def measure_parts(
    ensemble: Ensemble,
    data: EvaluationData,
    parts: Mapping[str, np.ndarray],
    part: str,
    batch_size: int,
    folder: Path,
    members: bool = False,
) -> tuple[dict[str, float], np.ndarray]:
    """Predict and measure parts of a data set, write `predictions_<part>.csv` of each, and warn of what the models do not know.

    With `members` these files also have the predictions of each model.

    Returns:
        The metrics by "<part>/<metric>/<target>", and the predictions [M, P] of the part that is named.
    """
    task, metrics, contents = ensemble.task, dict[str, float](), Contents()
    predictions = {}
    for name, indices in parts.items():
        molecules = data.molecules[indices]
        contents += contents_of(molecules)
        passes = predict_part(ensemble, molecules, batch_size)
        predictions[name], deviation = combined(task, passes)
        rows = Rows.of(measured(molecules))
        found = task.measure(predictions[name], metric_labels(molecules))
        if name != "train":  # errors are smaller there, so that uncertainties would look too large
            found = {**found, **assess(task, ensemble.calibration, predictions[name], rows.targets)}
        metrics |= {f"{name}/{key}": value for key, value in found.items()}
        each = ensemble.named(passes) if members else None
        columns = prediction_columns(task, predictions[name], deviation, ensemble.calibration, ensemble.digits, each, rows)
        write_predictions(folder / f"predictions_{name}.csv", task, molecules, *columns)
    warn_of_extrapolation(data.title, contents, ensemble.trained_on)
    return metrics, predictions[part]


def predict_part(ensemble: Ensemble, molecules: PackedMolecules, batch_size: int, of: Of = "all") -> np.ndarray:
    """Return the predictions [N, M, P] of molecules by each model; `of` says what predicts."""
    return np.stack([predict_molecules(member, molecules, batch_size, of) for member in ensemble.members])
