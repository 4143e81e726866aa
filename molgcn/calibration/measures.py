"""Measures of how well the uncertainties of one target describe its errors: standard deviations, or the confidence in classes."""

from __future__ import annotations

import math

import numpy as np
import torch

from molgcn.tasks.distributions import normal_nll

_BINS = 10


def deviation_metrics(error: np.ndarray, std: np.ndarray) -> dict[str, float]:
    """Compute the measures below of errors [n], true minus predicted, and predicted standard deviations [n], NaN where undefined."""
    return {
        "nll": nll(error, std),
        "miscalibration_area": miscalibration_area(error, std),
        "ence": ence(error, std),
        "uncertainty_spearman": rank_correlation(error, std),
    }


def nll(error: np.ndarray, std: np.ndarray) -> float:
    """Compute the mean negative log-likelihood of normal distributions, mean(log(std sqrt(2 pi)) + (error / std)^2 / 2)."""
    return float(normal_nll(*(torch.from_numpy(values) for values in (error, std**2))).mean())


def covering_levels(error: np.ndarray, std: np.ndarray) -> np.ndarray:
    """Return the levels of the smallest central normal intervals with each true value, erf(|error| / (std sqrt 2)), sorted [n]."""
    from scipy.special import erf

    return np.sort(erf(np.abs(error) / (std * math.sqrt(2))))


def miscalibration_area(error: np.ndarray, std: np.ndarray) -> float:
    """Compute the miscalibration area.

    It is the area between the observed coverage of central normal intervals and their level, over levels from 0 to 1. It is 0 for perfect
    calibration and at most 1/2 (Tran et al., Mach. Learn.: Sci. Technol. 1, 025006, 2020, after Kuleshov, Fenner and Ermon, ICML 2018).
    The coverage is a step function of the level, so that the area is computed exactly.
    """
    count = len(error)
    if count == 0:
        return math.nan
    edges = np.concatenate([[0.0], covering_levels(error, std), [1.0]])
    share = np.arange(count + 1) / count  # between one edge and the next
    low, high = edges[:-1] - share, edges[1:] - share
    return float(np.sum(np.where(low * high >= 0, np.abs(high**2 - low**2), high**2 + low**2)) / 2)


def binned_deviations(error: np.ndarray, std: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the root mean variance and the root mean squared error of at most ten bins.

    The bins have about equally many molecules each, and follow one another by standard deviation.
    """
    parts = [part for part in np.array_split(np.argsort(std, kind="stable"), _BINS) if len(part)]
    predicted, observed = (np.array([math.sqrt(np.mean(values[part] ** 2)) for part in parts]) for values in (std, error))
    return predicted, observed


def ence(error: np.ndarray, std: np.ndarray) -> float:
    """Compute the expected normalised calibration error (ENCE), the mean over bins of |RMV - RMSE| / RMV.

    RMV is the root mean variance (Levi et al., Sensors 22, 5540, 2022).
    """
    predicted, observed = binned_deviations(error, std)
    return float(np.mean(np.abs(predicted - observed) / predicted)) if len(predicted) else math.nan


def rank_correlation(error: np.ndarray, std: np.ndarray) -> float:
    """Compute Spearman's rank correlation of |error| and standard deviation. It is NaN where one of them does not vary."""
    from scipy.stats import spearmanr

    error = np.abs(error)
    if len(error) < 2 or np.ptp(error) == 0 or np.ptp(std) == 0:
        return math.nan
    return float(spearmanr(error, std).statistic)


def confidence_bins(labels: np.ndarray, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sort molecules into ten bins of equal width by their confidence, the largest probability [n, C] in a row.

    Of each bin it returns the number of molecules, the sum of their confidence, and the number of correct predictions, [10] each.
    """
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    bins = np.clip(np.ceil(confidence * _BINS).astype(np.int64) - 1, 0, _BINS - 1)  # (0, 0.1], (0.1, 0.2], ...
    count, summed, correct = (np.bincount(bins, weights, _BINS) for weights in (None, confidence, right))
    return count, summed, correct


def calibration_error(labels: np.ndarray, probabilities: np.ndarray) -> float:
    """Compute the expected calibration error.

    It is the mean over molecules of |accuracy - mean confidence| of their bin (Guo, Pleiss, Sun and Weinberger, ICML 2017, after Naeini,
    Cooper and Hauskrecht, AAAI 2015), a number from 0 to 1, or NaN without labels.
    """
    _, summed, correct = confidence_bins(labels, probabilities)
    return float(np.abs(correct - summed).sum() / len(labels)) if len(labels) else math.nan
