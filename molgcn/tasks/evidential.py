"""Evidential regression (`training.loss=evidential`): a network predicts how much evidence there is for its value."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from molgcn.config.training import TrainingConfig
from molgcn.tasks.mean_variance import normal_nll
from molgcn.tasks.regression import Regression
from molgcn.tasks.uncertain import UncertainRegression, positive


class Evidential(UncertainRegression):
    r"""Predict a value, the aleatoric standard deviation of the data around it and the epistemic one of the value itself.

    The four outputs become the parameters of a normal-inverse-gamma distribution, from which mean and variance of a standardised target
    are drawn: :math:`\gamma = o_1`, :math:`\nu = \mathrm{softplus}(o_2)`, :math:`\alpha = 1 + \mathrm{softplus}(o_3)` and
    :math:`\beta = \mathrm{softplus}(o_4)`, each softplus plus :math:`10^{-6}`. Predicted are :math:`\gamma`, the aleatoric standard
    deviation :math:`\sqrt{\beta / (\alpha - 1)}` and the epistemic one :math:`\sqrt{\beta / (\nu (\alpha - 1))}`. The loss is the negative
    log-likelihood of the target :math:`t`, which has a Student's t-distribution, plus :math:`\lambda |t - \gamma| (2 \nu + \alpha)`, where
    :math:`\lambda` is `training.evidential_regularization`.

    Source: Amini et al., "Deep Evidential Regression", NeurIPS 2020; for molecules Soleimany et al., ACS Cent. Sci. 7, 2021.
    """

    outputs_per_target = 4
    endings = ("predicted", "aleatoric std", "epistemic std")
    metrics = (*Regression.metrics, "nll")
    logged = (*Regression.logged, "nll")

    @property
    def described(self) -> str:
        """The predicted quantities, in words: the targets with their units, and both kinds of standard deviations."""
        return f"{super().described}, with aleatoric and epistemic standard deviations"

    def standardised(self, outputs: Tensor) -> Tensor:
        """Turn outputs [B, T, 4] into values, aleatoric and epistemic standard deviations [B, T, 3]."""
        value, nu, excess, beta = _parameters(outputs)
        aleatoric = (beta / excess).sqrt()
        return torch.stack([value, aleatoric, aleatoric / nu.sqrt()], dim=-1)

    def terms(self, outputs: Tensor, targets: Tensor, config: TrainingConfig) -> Tensor:
        """Return the regularised negative log-likelihood [B, T] of standardised targets."""
        value, nu, excess, beta = _parameters(outputs)
        error, alpha = targets - value, excess + 1
        omega = 2 * beta * (1 + nu)
        exact = alpha.double()  # float32 has no digits for the difference where alpha is large
        gammas = (exact.lgamma() - (exact + 0.5).lgamma()).to(alpha.dtype)
        likelihood = 0.5 * (math.pi * omega / nu).log() + (alpha + 0.5) * (error.square() * nu / omega).log1p() + gammas
        return likelihood + config.evidential_regularization * error.abs() * (2 * nu + alpha)

    def spread(self, predictions: np.ndarray) -> np.ndarray:
        """Return the total standard deviation [M, T], the root of the sum of both variances that predictions [M, P] hold."""
        return np.hypot(*np.moveaxis(self.by_target(predictions)[..., 1:], -1, 0))

    def measures(self, columns: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return the negative log-likelihood [M, T] of a normal distribution with both variances."""
        return {"nll": normal_nll(targets - columns[..., 0], columns[..., 1:].square().sum(-1))}


def _parameters(outputs: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return gamma, nu, alpha - 1 and beta [B, T] of outputs [B, T, 4]."""
    value, *others = outputs.unbind(-1)
    nu, excess, beta = map(positive, others)
    return value, nu, excess, beta
