"""Z-scaling: one factor that adjusts the predicted standard deviations to the size of the errors."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from molgcn.calibration.outputs import Numbers


@dataclass(frozen=True)
class ZScaling:
    """Calibrated standard deviations scale * std (Levi, Gispan, Giladi and Fetaya, Sensors 22, 5540, 2022).

    Attributes:
        scale: the factor.
    """

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
