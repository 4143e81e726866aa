"""The decision thresholds of targets with two classes, which are chosen on the validation part."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from molgcn.files.json_file import read_json
from molgcn.metrics.classes import THRESHOLD
from molgcn.metrics.comparison import Comparison, Threshold
from molgcn.metrics.ties import Ties
from molgcn.tasks.base import Task
from molgcn.tasks.classes import Classification


def chosen_thresholds(task: Task, predictions: np.ndarray, targets: np.ndarray) -> dict[str, Threshold]:
    """Choose the threshold of every target with two classes, from predictions [M, P] and targets [M, T] of the validation part."""
    found = {
        name: best_threshold(labels, probabilities)
        for part, given, true in task.of_parts(predictions, targets)
        if isinstance(part, Classification)
        for name, labels, probabilities in zip(part.names, true.T, part.by_target(given), strict=True)
    }
    return {name: threshold for name, threshold in found.items() if threshold is not None}


def saved_thresholds(run: Path) -> dict[str, Threshold]:
    """Return the thresholds that a run saved in its `result.json`. There are none where it has no such file."""
    path = run / "result.json"
    return dict(Comparison.of(read_json(path)).thresholds) if path.is_file() else {}


def best_threshold(labels: np.ndarray, probabilities: np.ndarray) -> Threshold | None:
    """Find the threshold with the largest Matthews' correlation coefficient, and among equals the nearest to 0.5.

    It is the mean of two neighbouring probabilities of class 1, [n]. There is none where only one class has labels [n] (NaN = missing),
    or all probabilities are equal.
    """
    known = ~np.isnan(labels) & np.isfinite(probabilities)
    positive, given = labels[known] == 1, probabilities[known].astype(np.float64)
    if positive.all() or not positive.any():
        return None
    ties = Ties(given)
    positives, negatives = (ties.sums(some[None].astype(np.float64))[0] for some in (positive, ~positive))
    levels = given[ties.order[ties.starts]]
    if len(levels) == 1:
        return None
    cuts = (levels[:-1] + levels[1:]) / 2
    fn, tn = positives.cumsum()[:-1], negatives.cumsum()[:-1]
    tp, fp = positives.sum() - fn, negatives.sum() - tn
    scale = np.sqrt(positives.sum()) * np.sqrt(negatives.sum()) * np.sqrt((tp + fp) * (fn + tn))
    mcc = (tp * tn - fp * fn) / scale
    best = np.flatnonzero(mcc >= mcc.max() - 1e-12)
    place = best[np.abs(cuts[best] - THRESHOLD).argmin()]
    return Threshold(float(cuts[place]), float(mcc[place]))
