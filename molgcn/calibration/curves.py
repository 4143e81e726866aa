"""What calibration fits to a target: a factor for its standard deviations, or a curve for the probabilities of each of its classes."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from molgcn.calibration.outputs import Classes, Numbers

_LEAST = np.finfo(np.float64).eps  # a probability of 0 or 1 has no logit


@dataclass(frozen=True)
class ZScaling:
    """Calibrated standard deviations scale * std (Levi, Gispan, Giladi and Fetaya, Sensors 22, 5540, 2022)."""

    scale: float

    @classmethod
    def fit(cls, output: Numbers, true: np.ndarray) -> ZScaling:
        """Fit the factor to true values [n] by maximum likelihood, with normal distributions around the predictions.

        The negative log-likelihood, mean(log(s std) + (error / (s std))^2 / 2), is least where s^2 = mean((error / std)^2).
        """
        assert output.std is not None
        return cls(math.sqrt(np.mean(((true - output.values) / output.std) ** 2)))

    def std(self, output: Numbers) -> np.ndarray:
        """Return the calibrated standard deviations [M]."""
        assert output.std is not None
        return self.scale * output.std


@dataclass(frozen=True)
class ClassCurves(ABC):
    """Curves from predicted to calibrated probabilities, one-vs-rest (Zadrozny and Elkan, KDD 2002).

    Each field of a subclass is a list with one value per calibrated class. Of two classes only class 1 is calibrated.
    """

    @classmethod
    def fit(cls, output: Classes, labels: np.ndarray) -> Self:
        """Fit the curves to labels [n]."""
        given = output.probabilities
        fitted = [cls.fit_curve(given[:, one], labels == one) for one in _calibrated(given)]
        return cls(*(list(values) for values in zip(*fitted, strict=True)))

    def probabilities(self, output: Classes) -> np.ndarray:
        """Return the calibrated probabilities [M, C], normalised so that every row sums to 1.

        Of two classes, class 0 gets the rest. A row in which every curve gives 0 gets equal probabilities.
        """
        given, curves = output.probabilities, zip(*vars(self).values(), strict=True)
        found = np.stack([self.curve(given[:, one], *curve) for one, curve in zip(_calibrated(given), curves, strict=True)], axis=1)
        if found.shape[1] == 1:
            return np.concatenate([1 - found, found], axis=1)
        total = found.sum(axis=1, keepdims=True)
        return np.divide(found, total, out=np.full_like(found, 1 / found.shape[1]), where=total > 0)

    def fits(self, num_classes: int) -> bool:
        """Return whether there is a curve for each class that is calibrated of so many."""
        return all(len(values) == (1 if num_classes == 2 else num_classes) for values in vars(self).values())

    @staticmethod
    @abstractmethod
    def fit_curve(probabilities: np.ndarray, positive: np.ndarray) -> tuple[Any, ...]:
        """Return the value of each field for one class, from its probabilities [n] and whether each molecule is of it, bool [n]."""

    @staticmethod
    @abstractmethod
    def curve(probabilities: np.ndarray, *values: Any) -> np.ndarray:
        """Return the calibrated probabilities [M] of one class, from its predicted ones and the value of each field."""


@dataclass(frozen=True)
class Isotonic(ClassCurves):
    """The best-fitting increasing curves, by least squares.

    The curves are smooth from about a thousand labels on. They are linear between their corners, and constant beyond them.
    """

    predicted: list[list[float]]  # for each calibrated class, the predicted probabilities at the corners of its curve, in ascending order
    calibrated: list[list[float]]  # for each calibrated class, the calibrated probabilities at these corners

    @staticmethod
    def fit_curve(probabilities: np.ndarray, positive: np.ndarray) -> tuple[list[float], list[float]]:
        """Return the corners of the curve of one class."""
        from sklearn.isotonic import IsotonicRegression  # takes a second to import

        fitted = IsotonicRegression(y_min=0, y_max=1).fit(probabilities, positive.astype(float))
        return fitted.X_thresholds_.tolist(), fitted.y_thresholds_.tolist()

    @staticmethod
    def curve(probabilities: np.ndarray, *values: list[float]) -> np.ndarray:
        """Interpolate between the corners."""
        corners, heights = values
        return np.interp(probabilities, corners, heights)


@dataclass(frozen=True)
class Platt(ClassCurves):
    """The curves sigmoid(slope_c * logit(p_c) + intercept_c) of calibrated classes (Platt, Advances in Large Margin Classifiers, 1999)."""

    slope: list[float]
    intercept: list[float]

    @staticmethod
    def fit_curve(probabilities: np.ndarray, positive: np.ndarray) -> tuple[float, float]:
        """Return slope and intercept of one class, by maximum likelihood.

        The labels are smoothed as Platt does, so that the curve stays finite where the classes are perfectly separable. Each molecule
        counts as positive with the weight t of its smoothed label, and as negative with the weight 1 - t.
        """
        from sklearn.linear_model import LogisticRegression  # takes a second to import

        count = positive.sum()
        target = np.where(positive, (count + 1) / (count + 2), 1 / (len(positive) - count + 2))
        logits = np.tile(_logit(probabilities), 2)[:, None]
        labels = np.repeat([1, 0], len(positive))
        fitted = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(logits, labels, np.concatenate([target, 1 - target]))
        return float(fitted.coef_[0, 0]), float(fitted.intercept_[0])

    @staticmethod
    def curve(probabilities: np.ndarray, *values: float) -> np.ndarray:
        """Return the sigmoid of the scaled and shifted logits."""
        from scipy.special import expit

        slope, intercept = values
        return expit(slope * _logit(probabilities) + intercept)


def _calibrated(probabilities: np.ndarray) -> range:
    count = probabilities.shape[1]
    return range(1, 2) if count == 2 else range(count)


def _logit(probabilities: np.ndarray) -> np.ndarray:
    clipped = np.clip(probabilities, _LEAST, 1 - _LEAST)
    return np.log(clipped) - np.log1p(-clipped)
