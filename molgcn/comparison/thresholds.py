"""The choice of the decision threshold on the validation part."""

from __future__ import annotations

import numpy as np

from molgcn.metrics.classes import THRESHOLD
from molgcn.metrics.comparison import Threshold
from molgcn.metrics.ties import Ties


def best_threshold(labels: np.ndarray, probabilities: np.ndarray) -> Threshold | None:
    """Find the threshold with the largest Matthews' correlation coefficient, and among equals the nearest to 0.5.

    Args:
        labels: [n], the true classes 0 or 1, NaN = missing.
        probabilities: [n], the predicted probabilities of class 1.

    Returns:
        The threshold, which is the mean of two neighbouring probabilities. None where only one class has labels, or all probabilities are
        equal.
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
