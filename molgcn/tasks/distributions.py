"""The kinds of regression with uncertainties: a network predicts a normal distribution, the evidence for one, or quantiles."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from molgcn.config.training import TrainingConfig
from molgcn.tasks.regression import Regression
from molgcn.tasks.uncertain import UncertainRegression, positive


def normal_nll(error: Tensor, variance: Tensor) -> Tensor:
    """Return the negative log-likelihood of values that differ by `error` from the means of normal distributions of a variance."""
    return 0.5 * (error.square() / variance + variance.log() + math.log(2 * math.pi))


class MeanVariance(UncertainRegression):
    r"""Predict the mean :math:`\mu` and the standard deviation :math:`\sigma` of each target (`training.loss=mve`).

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
        return f"{super().described}, with standard deviations"

    def standardised(self, outputs: Tensor) -> Tensor:
        """Turn outputs [B, T, 2] into means and standard deviations [B, T, 2]."""
        mean, raw = outputs.unbind(-1)
        return torch.stack([mean, positive(raw).sqrt()], dim=-1)

    def terms(self, outputs: Tensor, targets: Tensor, config: TrainingConfig) -> Tensor:
        """Return the negative log-likelihood [B, T] of standardised targets."""
        mean, raw = outputs.unbind(-1)
        return normal_nll(targets - mean, positive(raw))

    def spread(self, predictions: np.ndarray) -> np.ndarray:
        return self.by_target(predictions)[..., 1]

    def measures(self, columns: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return the negative log-likelihood [M, T]."""
        mean, std = columns.unbind(-1)
        return {"nll": normal_nll(targets - mean, std.square())}


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
        return f"{super().described}, with aleatoric and epistemic standard deviations"

    def standardised(self, outputs: Tensor) -> Tensor:
        """Turn outputs [B, T, 4] into values, aleatoric and epistemic standard deviations [B, T, 3]."""
        value, nu, excess, beta = _evidence(outputs)
        aleatoric = (beta / excess).sqrt()
        return torch.stack([value, aleatoric, aleatoric / nu.sqrt()], dim=-1)

    def terms(self, outputs: Tensor, targets: Tensor, config: TrainingConfig) -> Tensor:
        """Return the regularised negative log-likelihood [B, T] of standardised targets."""
        value, nu, excess, beta = _evidence(outputs)
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
        return {"nll": normal_nll(targets - columns[..., 0], columns[..., 1:].square().sum(-1))}


def _evidence(outputs: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return gamma, nu, alpha - 1 and beta [B, T] of outputs [B, T, 4]."""
    value, *others = outputs.unbind(-1)
    nu, excess, beta = map(positive, others)
    return value, nu, excess, beta


@dataclass(frozen=True)
class Quantile(UncertainRegression):
    r"""Predict the median of each target and the quantiles :math:`\alpha / 2` and :math:`1 - \alpha / 2`.

    The three outputs are the median and, before a softplus, its distances to the lower and to the upper quantile, so that quantiles never
    cross. The loss is the mean of the three pinball losses :math:`\max(\tau e, (\tau - 1) e)` of :math:`e`, target minus quantile
    :math:`\tau`.

    Source: Koenker and Bassett, "Regression Quantiles", Econometrica 46, 1978.
    """

    alpha: float = 0.1  # the expected share of true values outside of the interval, `training.quantile_alpha`
    outputs_per_target = 3
    endings = ("predicted", "lower", "upper")
    num_values = 3
    metrics = (*Regression.metrics, "pinball", "coverage")
    logged = (*Regression.logged, "pinball", "coverage")
    unordered = frozenset({"coverage"})
    in_units = Regression.in_units | {"pinball"}

    @classmethod
    def of(cls, task: Regression, options: TrainingConfig) -> Self:
        return replace(super().of(task, options), alpha=options.quantile_alpha)

    @property
    def levels(self) -> tuple[float, float, float]:
        """The levels of the quantiles in the three columns: the expected shares of true values below them."""
        return 0.5, self.alpha / 2, 1 - self.alpha / 2

    @property
    def described(self) -> str:
        return "{}, median and quantiles {:g} and {:g}".format(super().described, *self.levels[1:])

    def standardised(self, outputs: Tensor) -> Tensor:
        """Turn outputs [B, T, 3] into medians, lower and upper quantiles [B, T, 3]."""
        median, below, above = outputs.unbind(-1)
        return torch.stack([median, median - F.softplus(below), median + F.softplus(above)], dim=-1)

    def terms(self, outputs: Tensor, targets: Tensor, config: TrainingConfig) -> Tensor:
        return self._pinball(self.standardised(outputs), targets)

    def interval(self, predictions: np.ndarray) -> np.ndarray:
        return self.by_target(predictions)[..., 1:]

    def measures(self, columns: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return the mean pinball loss [M, T], and 1 where the interval holds the target, else 0."""
        _, lower, upper = columns.unbind(-1)
        return {"pinball": self._pinball(columns, targets), "coverage": ((lower <= targets) & (targets <= upper)).double()}

    def _pinball(self, quantiles: Tensor, targets: Tensor) -> Tensor:
        columns = zip(self.levels, quantiles.unbind(-1), strict=True)
        losses = [torch.maximum(level * (targets - one), (level - 1) * (targets - one)) for level, one in columns]
        return torch.stack(losses).mean(0)
