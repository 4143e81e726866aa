"""Mean-variance estimation (`training.loss=mve`): a network predicts the mean and the variance of a normal distribution."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from molgcn.config.training import TrainingConfig
from molgcn.tasks.regression import Regression
from molgcn.tasks.uncertain import UncertainRegression, positive


class MeanVariance(UncertainRegression):
    r"""Predict the mean :math:`\mu` and the standard deviation :math:`\sigma` of each target.

    The two outputs are :math:`\mu` and :math:`s` for standardised targets, with :math:`\sigma^2 = \mathrm{softplus}(s) + 10^{-6}`. The loss
    is the negative log-likelihood of the normal distribution.

    Source: Nix and Weigend, "Estimating the mean and variance of the target probability distribution", ICNN 1994.
    """

    outputs_per_target = 2
    endings = ("predicted", "std")
    metrics = (*Regression.metrics, "nll")
    logged = (*Regression.logged, "nll")

    @property
    def described(self) -> str:
        """The predicted quantities, in words: the targets with their units, and standard deviations."""
        return f"{super().described}, with standard deviations"

    def standardised(self, outputs: Tensor) -> Tensor:
        """Turn outputs [B, T, 2] into means and standard deviations [B, T, 2]."""
        mean, variance = _parameters(outputs)
        return torch.stack([mean, variance.sqrt()], dim=-1)

    def terms(self, outputs: Tensor, targets: Tensor, config: TrainingConfig) -> Tensor:
        """Return the negative log-likelihood [B, T] of standardised targets."""
        mean, variance = _parameters(outputs)
        return normal_nll(targets - mean, variance)

    def spread(self, predictions: np.ndarray) -> np.ndarray:
        """Return the standard deviation [M, T] that predictions [M, P] hold."""
        return self.by_target(predictions)[..., 1]

    def measures(self, columns: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return the negative log-likelihood [M, T]."""
        mean, std = columns.unbind(-1)
        return {"nll": normal_nll(targets - mean, std.square())}


def _parameters(outputs: Tensor) -> tuple[Tensor, Tensor]:
    mean, raw = outputs.unbind(-1)
    return mean, positive(raw)


def normal_nll(error: Tensor, variance: Tensor) -> Tensor:
    """Return the negative log-likelihood of values under normal distributions.

    Args:
        error: the differences of the values from the means.
        variance: the variances, in the shape of `error`.
    """
    return 0.5 * (error.square() / variance + variance.log() + math.log(2 * math.pi))
