"""Isotonic regression: the rising step curve from predicted to calibrated probabilities that fits best."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from molgcn.calibration.one_vs_rest import apply_each, each_class
from molgcn.calibration.outputs import Classes


@dataclass(frozen=True)
class Isotonic:
    """Give each class the probability on a rising curve (Zadrozny and Elkan, KDD 2002); it takes about a thousand labels to be smooth.

    Attributes:
        predicted: of each calibrated class the probabilities at the curve's corners, rising.
        calibrated: the curve's values there; it is straight between them and level beyond.
    """

    predicted: list[list[float]]
    calibrated: list[list[float]]

    @classmethod
    def fit(cls, output: Classes, labels: np.ndarray) -> Isotonic:
        """Return the curves that have the least squared difference to labels [n]."""
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
