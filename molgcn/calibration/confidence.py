"""The calibration of the confidence, which is the probability of the likeliest class."""

from __future__ import annotations

import math

import numpy as np

_BINS = 10


def confidence_bins(labels: np.ndarray, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sort molecules into ten bins of equal width by their confidence.

    Args:
        labels: int [n], the true classes.
        probabilities: float64 [n, C], the predicted probabilities. The confidence is the largest one in a row.

    Returns:
        For each bin the number of molecules, the sum of their confidence, and the number of correct predictions, [10] each.
    """
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    bins = np.clip(np.ceil(confidence * _BINS).astype(np.int64) - 1, 0, _BINS - 1)  # (0, 0.1], (0.1, 0.2], ...
    count, summed, correct = (np.bincount(bins, weights, _BINS) for weights in (None, confidence, right))
    return count, summed, correct


def calibration_error(labels: np.ndarray, probabilities: np.ndarray) -> float:
    """Compute the expected calibration error.

    It is the mean over molecules of |accuracy - mean confidence| of their bin (Guo, Pleiss, Sun and Weinberger, ICML 2017, after Naeini,
    Cooper and Hauskrecht, AAAI 2015).

    Args:
        labels: int [n], the true classes.
        probabilities: float64 [n, C], the predicted probabilities.

    Returns:
        A number from 0 to 1, or NaN without labels.
    """
    _, summed, correct = confidence_bins(labels, probabilities)
    return float(np.abs(correct - summed).sum() / len(labels)) if len(labels) else math.nan
