"""Platt scaling: a logistic regression on the logit of a class's probability."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from molgcn.calibration.one_vs_rest import apply_each, each_class
from molgcn.calibration.outputs import Classes

_LEAST = np.finfo(np.float64).eps  # a probability of 0 or 1 has no logit


@dataclass(frozen=True)
class Platt:
    """Calibrated probabilities sigmoid(slope_c * logit(p_c) + intercept_c) (Platt, Advances in Large Margin Classifiers, 1999).

    For more than two classes the results are then normalised; see :mod:`molgcn.calibration.one_vs_rest`.

    Attributes:
        slope: the slope of each calibrated class.
        intercept: the intercept of each calibrated class.
    """

    slope: list[float]
    intercept: list[float]

    @classmethod
    def fit(cls, output: Classes, labels: np.ndarray) -> Platt:
        """Fit the curves to labels [n] by maximum likelihood.

        The labels are smoothed as Platt does, so that the curves stay finite where the classes are perfectly separable.
        """
        found = [_fit_one(*one) for one in each_class(output.probabilities, labels)]
        return cls([slope for slope, _ in found], [intercept for _, intercept in found])

    def probabilities(self, output: Classes) -> np.ndarray:
        """Return the calibrated probabilities [M, C]."""
        curves = [partial(_curve, slope=slope, intercept=shift) for slope, shift in zip(self.slope, self.intercept, strict=True)]
        return apply_each(output.probabilities, curves)


def _fit_one(probabilities: np.ndarray, positive: np.ndarray) -> tuple[float, float]:
    """Fit one curve and return its slope and intercept.

    Each molecule counts as positive with the weight t of its smoothed label, and as negative with the weight 1 - t.
    """
    from sklearn.linear_model import LogisticRegression  # takes a second to import

    count = positive.sum()
    target = np.where(positive, (count + 1) / (count + 2), 1 / (len(positive) - count + 2))
    logits = np.tile(_logit(probabilities), 2)[:, None]
    labels = np.repeat([1, 0], len(positive))
    fitted = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(logits, labels, np.concatenate([target, 1 - target]))
    return float(fitted.coef_[0, 0]), float(fitted.intercept_[0])


def _curve(probabilities: np.ndarray, slope: float, intercept: float) -> np.ndarray:
    from scipy.special import expit

    return expit(slope * _logit(probabilities) + intercept)


def _logit(probabilities: np.ndarray) -> np.ndarray:
    clipped = np.clip(probabilities, _LEAST, 1 - _LEAST)
    return np.log(clipped) - np.log1p(-clipped)
