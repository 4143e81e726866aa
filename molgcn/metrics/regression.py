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
    values = Values(as_float64(predictions), as_float64(targets), weights)
    return {metric: getattr(values, metric)().cpu().numpy() for metric in METRICS if metric in wanted}


class Values:
    """Predicted and true values, and each metric of them [R, T].

    Args:
        predicted: float64 [M, T].
        true: float64 [M, T], NaN where missing.
        weights: [R, M], or None for a single resample that has each molecule once.
    """

    def __init__(self, predicted: Tensor, true: Tensor, weights: np.ndarray | None) -> None:
        self.predicted, self.true, self.known = predicted, true, ~true.isnan()
        self.weights = None if weights is None else torch.from_numpy(weights).to(true)
        self.count = self.total(self.known.double())
        self.error = torch.where(self.known, predicted - true, 0.0)

    def total(self, values: Tensor) -> Tensor:
        """Return the sums [R, T] of values [M, T] over the molecules of each resample."""
        return values.sum(0, keepdim=True) if self.weights is None else self.weights @ values

    def mean(self, values: Tensor) -> Tensor:
        """Return the means [R, T] of values [M, T] over the molecules with a true value."""
        return self.total(torch.where(self.known, values, 0.0)) / self.count

    def mae(self) -> Tensor:
        """Return the mean absolute error."""
        return self.mean(self.error.abs())

    def rmse(self) -> Tensor:
        """Return the root of the mean squared error."""
        return self.mean(self.error.square()).sqrt()

    def r2(self) -> Tensor:
        """Return the coefficient of determination."""
        variation = self._variation(self._deviation(self.true))
        return torch.where(variation > 0, 1 - self.total(self.error.square()) / variation, torch.nan)

    def pearson(self) -> Tensor:
        """Return the linear correlation."""
        deviations = self._deviation(self.true), self._deviation(self.predicted)
        one, other = (self._variation(deviation) for deviation in deviations)
        shared = self._covariation(*deviations)
        return torch.where((one > 0) & (other > 0), shared / (one.sqrt() * other.sqrt()), torch.nan).clamp(-1, 1)

    def spearman(self) -> Tensor:
        """Return the correlation of the ranks."""
        weights = np.ones((1, len(self.true))) if self.weights is None else self.weights.cpu().numpy()
        columns = zip(self.predicted.cpu().numpy().T, self.true.cpu().numpy().T, strict=True)
        return torch.from_numpy(np.stack([_rank_correlation(*column, weights) for column in columns], axis=1))

    def mape(self) -> Tensor:
        """Return the mean of the absolute errors over the true values."""
        return self.mean(self.error.abs() / torch.where(self.true == 0, torch.nan, self.true.abs()))

    def _deviation(self, values: Tensor) -> Tensor:
        """Return each known value's distance from the known ones' mean, by their distances from the smallest: of equal values exactly 0."""
        candidates = torch.cat([values.masked_fill(~self.known, torch.inf), values.new_full((1, values.shape[1]), torch.inf)])
        above = torch.where(self.known, values - candidates.amin(0), 0.0)
        return torch.where(self.known, above - above.sum(0) / self.known.sum(0), 0.0)

    def _covariation(self, one: Tensor, other: Tensor) -> Tensor:
        """Return the sums of products of distances from each resample's means, of distances from the means over all molecules."""
        return self.total(one * other) - self.total(one) * self.total(other) / self.count

    def _variation(self, deviation: Tensor) -> Tensor:
        """Return the sums of squared distances from each resample's mean, 0 where they are nothing but rounding."""
        found = self._covariation(deviation, deviation)
        return torch.where(found > _FLAT * self.total(deviation.square()), found, 0.0)


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


def as_float64(values: Tensor | np.ndarray) -> Tensor:
    """Return values as a tensor in float64, on the device where they are."""
    return values.double() if isinstance(values, Tensor) else torch.from_numpy(np.array(values, np.float64))
