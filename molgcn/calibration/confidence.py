"""How well the probability of the likeliest class tells the share of hits."""

from __future__ import annotations

import math

import numpy as np

_BINS = 10


def confidence_bins(labels: np.ndarray, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return how many molecules, their summed confidence and how many hits each of ten bins of equal width has, [10] each.

    Args:
        labels: int [n].
        probabilities: float64 [n, C]; the confidence is the largest of a row.
    """
    confidence, hit = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    bins = np.clip(np.ceil(confidence * _BINS).astype(np.int64) - 1, 0, _BINS - 1)  # (0, 0.1], (0.1, 0.2], ...
    count, summed, hits = (np.bincount(bins, weights, _BINS) for weights in (None, confidence, hit))
    return count, summed, hits


def calibration_error(labels: np.ndarray, probabilities: np.ndarray) -> float:
    """Compute the expected calibration error: mean over molecules of |share of hits - mean confidence| of their bin, from 0 to 1.

    See Guo, Pleiss, Sun and Weinberger (ICML 2017), after Naeini, Cooper and Hauskrecht (AAAI 2015).

    Args:
        labels: int [n].
        probabilities: float64 [n, C].

    Returns:
        NaN without labels.
    """
    _, summed, hits = confidence_bins(labels, probabilities)
    return float(np.abs(hits - summed).sum() / len(labels)) if len(labels) else math.nan
