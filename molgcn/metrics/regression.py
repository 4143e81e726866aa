"""Metrics of predicted numbers, for a set of molecules and for its bootstrap resamples."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import torch
from torch import Tensor

from molgcn.metrics.ties import ranks

METRICS = ("mae", "rmse", "r2", "pearson", "spearman", "mape")
LOGGED = ("mae", "rmse", "r2")  # the metrics that cost no more than the loss
BOUNDED = {"bounded_mae": "mae", "bounded_rmse": "rmse", "bounded_r2": "r2"}  # with bounds as true values
RISING = frozenset({"r2", "pearson", "spearman"})
IN_UNITS = frozenset({"mae", "rmse"})
_FLAT = 1e-12  # a sum of squared deviations below this share of the sum that it is subtracted from is rounding


def errors_of(predictions: Tensor | np.ndarray, targets: Tensor | np.ndarray) -> dict[str, list[float]]:
    """Compute MAE, RMSE and R2, as T numbers each; see :func:`regression_metrics`."""
    return {metric: values[0].tolist() for metric, values in regression_metrics(predictions, targets, LOGGED).items()}


def regression_metrics(
    predictions: Tensor | np.ndarray,
    targets: Tensor | np.ndarray,
    wanted: Collection[str] = METRICS,
    weights: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Compute metrics of every target in float64, with molecules weighted.

    Args:
        predictions: [M, T], in the targets' units.
        targets: [M, T], NaN where missing.
        wanted: the metrics to compute, some of `METRICS`.
        weights: [R, M], how often each of R resamples contains each molecule. None means a single resample with every molecule once.

    Returns:
        float64 [R, T] by metric: "mae" and "rmse" in the targets' units, "mape" as a share of the true value, "r2", "pearson" and
        "spearman" (equal values share their mean rank). A metric is NaN where it is undefined. All metrics are undefined without known
        values. R2 and the correlations are undefined where all known values are equal, and the correlations also where all predictions
        are. MAPE is undefined where a known value is 0.
    """
    values = Values(as_float64(predictions), as_float64(targets), weights)
    return {metric: getattr(values, metric)().cpu().numpy() for metric in METRICS if metric in wanted}


def bounded_metrics(
    predictions: Tensor | np.ndarray, targets: Tensor, bounds: Tensor | None, wanted: Collection[str], weights: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """Compute the metrics of `BOUNDED`, float64 [R, T], for all known targets, bounds among them; see :func:`regression_metrics`.

    A prediction on the right side of a bound has no error. `bounds`, [M, T] or None, are -1 where the true value is below its target, 1
    where it is above, else 0.

    Source: Chemprop's bounded metrics.
    """
    plain = {metric: BOUNDED[metric] for metric in wanted if metric in BOUNDED}
    if not plain:
        return {}
    predicted, true = as_float64(predictions), as_float64(targets)
    if bounds is not None:
        below, above = (bounds < 0) & (predicted < true), (bounds > 0) & (predicted > true)
        predicted = torch.where(below | above, true, predicted)
    found = regression_metrics(predicted, true, plain.values(), weights)
    return {metric: found[of] for metric, of in plain.items()}


class Values:
    """Predicted and true values, with one method per metric that returns it as float64 [R, T]; see :func:`regression_metrics`."""

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
        return self.mean(self.error.abs())

    def rmse(self) -> Tensor:
        return self.mean(self.error.square()).sqrt()

    def r2(self) -> Tensor:
        """Return the coefficient of determination, R2."""
        variation = self._variation(self._deviation(self.true))
        return torch.where(variation > 0, 1 - self.total(self.error.square()) / variation, torch.nan)

    def pearson(self) -> Tensor:
        """Return Pearson's correlation coefficient."""
        deviations = self._deviation(self.true), self._deviation(self.predicted)
        one, other = (self._variation(deviation) for deviation in deviations)
        shared = self._covariation(*deviations)
        return torch.where((one > 0) & (other > 0), shared / (one.sqrt() * other.sqrt()), torch.nan).clamp(-1, 1)

    def spearman(self) -> Tensor:
        """Return Spearman's rank correlation coefficient."""
        weights = np.ones((1, len(self.true))) if self.weights is None else self.weights.cpu().numpy()
        columns = zip(self.predicted.cpu().numpy().T, self.true.cpu().numpy().T, strict=True)
        return torch.from_numpy(np.stack([_rank_correlation(*column, weights) for column in columns], axis=1))

    def mape(self) -> Tensor:
        """Return the mean absolute percentage error, as a share of the true value."""
        return self.mean(self.error.abs() / torch.where(self.true == 0, torch.nan, self.true.abs()))

    def _deviation(self, values: Tensor) -> Tensor:
        """Return each known value minus the mean of the known values.

        The smallest value is subtracted first, so that the result is exactly 0 where all values are equal.
        """
        candidates = torch.cat([values.masked_fill(~self.known, torch.inf), values.new_full((1, values.shape[1]), torch.inf)])
        above = torch.where(self.known, values - candidates.amin(0), 0.0)
        return torch.where(self.known, above - above.sum(0) / self.known.sum(0), 0.0)

    def _covariation(self, one: Tensor, other: Tensor) -> Tensor:
        """Return the sums over each resample of products of deviations from its means; given are deviations [M, T] from all means."""
        return self.total(one * other) - self.total(one) * self.total(other) / self.count

    def _variation(self, deviation: Tensor) -> Tensor:
        """Return the sums of squared deviations from each resample's mean, 0 where they are only rounding."""
        found = self._covariation(deviation, deviation)
        return torch.where(found > _FLAT * self.total(deviation.square()), found, 0.0)


def _rank_correlation(predicted: np.ndarray, true: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Compute the Spearman correlation of one target, float64 [R]."""
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
    return values.double() if isinstance(values, Tensor) else torch.from_numpy(np.array(values, np.float64))
