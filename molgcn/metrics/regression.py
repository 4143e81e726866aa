"""Metrics of numbers: the one place where they are computed, for a set of molecules and for its bootstrap resamples."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import torch
from torch import Tensor

from molgcn.metrics.ties import ranks

METRICS = ("mae", "rmse", "r2", "pearson", "spearman", "mape")
LOGGED = ("mae", "rmse", "r2")  # those that cost no more than the loss
RISING = frozenset({"r2", "pearson", "spearman"})
IN_UNITS = frozenset({"mae", "rmse"})
_FLAT = 1e-12  # a variation below this share of the squares that it is the difference of is rounding


def errors_of(predictions: Tensor | np.ndarray, targets: Tensor | np.ndarray) -> dict[str, list[float]]:
    """Compute MAE, RMSE and R2, T numbers each; see :func:`regression_metrics`."""
    return {metric: values[0].tolist() for metric, values in regression_metrics(predictions, targets, LOGGED).items()}


def regression_metrics(
    predictions: Tensor | np.ndarray,
    targets: Tensor | np.ndarray,
    wanted: Collection[str] = METRICS,
    weights: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Compute metrics of every target in float64, from all values at once, one molecule one vote or as many as its weight.

    Args:
        predictions: [M, T], in the targets' units.
        targets: [M, T], NaN where missing.
        wanted: some of `METRICS`.
        weights: [R, M], how often each of R resamples has a molecule, or None for a single one that has each once.

    Returns:
        float64 [R, T] by metric: "mae" and "rmse" in the targets' units, "mape" as a share of the true value, "r2", "pearson" and
        "spearman" (equal values share their mean rank). NaN where undefined: all without known values, R2 and the correlations where
        the known values are all the same, the correlations also where the predictions are, MAPE where a known value is 0.
    """
    predicted, true = (_float64(values) for values in (predictions, targets))
    known = ~true.isnan()
    votes = None if weights is None else torch.from_numpy(weights).to(true)
    found = _moments(predicted, true, known, votes)
    if "spearman" in wanted:
        each = np.ones((1, len(true))) if weights is None else weights
        columns = zip(predicted.cpu().numpy().T, true.cpu().numpy().T, strict=True)
        found["spearman"] = np.stack([_rank_correlation(*column, each) for column in columns], axis=1)
    return {metric: np.asarray(found[metric]) for metric in METRICS if metric in wanted}


def _moments(predicted: Tensor, true: Tensor, known: Tensor, votes: Tensor | None) -> dict[str, np.ndarray]:
    """Compute what sums over molecules tell."""

    def total(values: Tensor) -> Tensor:
        return values.sum(0, keepdim=True) if votes is None else votes @ values

    count = total(known.double())

    def covariation(one: Tensor, other: Tensor) -> Tensor:
        products = total(one * other)
        found = products - total(one) * total(other) / count
        return torch.where(found > _FLAT * products, found, 0.0) if one is other else found

    error = torch.where(known, predicted - true, 0.0)
    squares = total(error.square())
    true_deviation, deviation = (_deviation(values, known) for values in (true, predicted))
    variation, spread = (covariation(values, values) for values in (true_deviation, deviation))
    shared = covariation(true_deviation, deviation)
    share = torch.where(known, error.abs() / torch.where(true == 0, torch.nan, true.abs()), 0.0)
    found = {
        "mae": total(error.abs()) / count,
        "rmse": (squares / count).sqrt(),
        "r2": torch.where(variation > 0, 1 - squares / variation, torch.nan),
        "pearson": torch.where((variation > 0) & (spread > 0), shared / (variation.sqrt() * spread.sqrt()), torch.nan).clamp(-1, 1),
        "mape": total(share) / count,
    }
    return {metric: values.cpu().numpy() for metric, values in found.items()}


def _deviation(values: Tensor, known: Tensor) -> Tensor:
    """Return each known value's distance from the known ones' mean, by their distances from the smallest: of equal values exactly 0."""
    candidates = torch.cat([values.masked_fill(~known, torch.inf), values.new_full((1, values.shape[1]), torch.inf)])
    above = torch.where(known, values - candidates.amin(0), 0.0)
    return torch.where(known, above - above.sum(0) / known.sum(0), 0.0)


def _rank_correlation(predicted: np.ndarray, true: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Compute one target's Spearman correlation [R]."""
    known = ~np.isnan(true)
    some = weights[:, known]
    if not some.size or not np.isfinite(predicted[known]).all():
        return np.full(len(weights), np.nan)
    middle = (some.sum(1, keepdims=True) + 1) / 2  # the mean rank
    one, other = (ranks(values[known], some) - middle for values in (predicted, true))
    shared, variation, spread = (np.einsum("rn,rn,rn->r", some, *pair) for pair in ((one, other), (one, one), (other, other)))
    with np.errstate(invalid="ignore"):
        return np.clip(shared / np.sqrt(variation * spread), -1, 1)


def _float64(values: Tensor | np.ndarray) -> Tensor:
    return values.double() if isinstance(values, Tensor) else torch.from_numpy(np.array(values, np.float64))
