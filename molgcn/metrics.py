"""MAE, RMSE and R2 of every target: the one place where they are computed."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor


def errors_of(predictions: Tensor | np.ndarray, targets: Tensor | np.ndarray) -> dict[str, list[float]]:
    """Compute MAE, RMSE and R2 of every target in float64, from all values at once, one molecule one vote.

    Args:
        predictions: [M, T], in the targets' units.
        targets: [M, T], NaN where missing.

    Returns:
        "mae" and "rmse" in the targets' units and "r2", T numbers each; NaN where undefined: all three without known values, R2 where the
        known values are all the same.
    """
    predicted, true = (as_float64(values) for values in (predictions, targets))
    known = ~true.isnan()
    count = known.sum(0)
    error = torch.where(known, predicted - true, 0.0)
    squares = error.square().sum(0)
    candidates = torch.cat([true.masked_fill(~known, torch.inf), true.new_full((1, true.shape[1]), torch.inf)])
    above = torch.where(known, true - candidates.amin(0), 0.0)  # the smallest value: equal values then vary by exactly nothing
    variation = torch.where(known, above - above.sum(0) / count, 0.0).square().sum(0)
    r2 = torch.where(variation > 0, 1 - squares / variation, torch.nan)
    rows = torch.stack([error.abs().sum(0) / count, (squares / count).sqrt(), r2]).tolist()
    return dict(zip(("mae", "rmse", "r2"), rows, strict=True))


def as_float64(values: Tensor | np.ndarray) -> Tensor:
    """Return values as a tensor in float64, on the device where they are."""
    return values.double() if isinstance(values, Tensor) else torch.from_numpy(np.array(values, np.float64))


def metric_title(metric: str) -> str:
    """Return a metric's name as tables show it: "MAE", "ROC AUC"."""
    return metric.replace("_", " ").upper()


def error_text(error: float) -> str:
    """Return four significant digits of an error, "-" where it is undefined."""
    return "-" if math.isnan(error) else f"{error:.4g}"
