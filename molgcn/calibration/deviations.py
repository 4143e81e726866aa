"""Measures of how well the predicted standard deviations of one target describe its errors."""

from __future__ import annotations

import math

import numpy as np
import torch

from molgcn.tasks.mean_variance import normal_nll

_BINS = 10


def deviation_metrics(error: np.ndarray, std: np.ndarray) -> dict[str, float]:
    """Compute every measure.

    Args:
        error: float64 [n], true minus predicted.
        std: float64 [n], the predicted standard deviations.

    Returns:
        The values of "nll", "miscalibration_area", "ence" and "uncertainty_spearman" (:func:`rank_correlation`), NaN where undefined.
    """
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
