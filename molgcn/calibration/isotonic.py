"""Isotonic regression: the best-fitting increasing curve from predicted to calibrated probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from molgcn.calibration.one_vs_rest import apply_each, each_class
from molgcn.calibration.outputs import Classes


@dataclass(frozen=True)
class Isotonic:
    """Calibrated probabilities by isotonic regression (Zadrozny and Elkan, KDD 2002).

    The curves are smooth from about a thousand labels on. They are linear between their corners, and constant beyond them.

    Attributes:
        predicted: for each calibrated class, the predicted probabilities at the corners of its curve, in ascending order.
        calibrated: for each calibrated class, the calibrated probabilities at these corners.
    """

    predicted: list[list[float]]
    calibrated: list[list[float]]

    @classmethod
    def fit(cls, output: Classes, labels: np.ndarray) -> Isotonic:
        """Fit the curves to labels [n] by least squares."""
        from sklearn.isotonic import IsotonicRegression  # takes a second to import

        fitted = [
            IsotonicRegression(y_min=0, y_max=1).fit(given, positive.astype(float))
            for given, positive in each_class(output.probabilities, labels)
        ]
        return cls([one.X_thresholds_.tolist() for one in fitted], [one.y_thresholds_.tolist() for one in fitted])

    def probabilities(self, output: Classes) -> np.ndarray:
        """Return the calibrated probabilities [M, C]."""
        return apply_each(
            output.probabilities,
            [partial(_curve, corners=one, values=other) for one, other in zip(self.predicted, self.calibrated, strict=True)],
        )


def _curve(probabilities: np.ndarray, corners: list[float], values: list[float]) -> np.ndarray:
    return np.interp(probabilities, corners, values)
