"""Quantile regression (`training.loss=quantile`): a network predicts the median and an interval of each target."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from molgcn.config.training import TrainingConfig
from molgcn.tasks.regression import Regression
from molgcn.tasks.uncertain import UncertainRegression


@dataclass(frozen=True)
class Quantile(UncertainRegression):
    r"""Predict the median of each target and the quantiles :math:`\alpha / 2` and :math:`1 - \alpha / 2`.

    The three outputs are the median and, before a softplus, its distances to the lower and to the upper quantile, so that quantiles never
    cross. The loss is the mean of the three pinball losses :math:`\max(\tau e, (\tau - 1) e)` of :math:`e`, target minus quantile
    :math:`\tau`.

    Source: Koenker and Bassett, "Regression Quantiles", Econometrica 46, 1978.

    Attributes:
        alpha: the expected share of true values outside of the interval, `training.quantile_alpha`.
    """

    alpha: float = 0.1
    outputs_per_target = 3
    endings = ("predicted", "lower", "upper")
    num_values = 3
    metrics = (*Regression.metrics, "pinball", "coverage")
    logged = (*Regression.logged, "pinball", "coverage")
    unordered = frozenset({"coverage"})
    in_units = Regression.in_units | {"pinball"}

    @classmethod
    def of(cls, task: Regression, options: TrainingConfig) -> Self:
        """Return the task for the targets of another one, with `quantile_alpha`."""
        return replace(super().of(task, options), alpha=options.quantile_alpha)

    @property
    def levels(self) -> tuple[float, float, float]:
        """The levels of the quantiles in the three columns: the expected shares of true values below them."""
        return 0.5, self.alpha / 2, 1 - self.alpha / 2

    @property
    def described(self) -> str:
        """The predicted quantities, in words: the targets with their units, and their quantiles."""
        return "{}, median and quantiles {:g} and {:g}".format(super().described, *self.levels[1:])

    def standardised(self, outputs: Tensor) -> Tensor:
        """Turn outputs [B, T, 3] into medians, lower and upper quantiles [B, T, 3]."""
        median, below, above = outputs.unbind(-1)
        return torch.stack([median, median - F.softplus(below), median + F.softplus(above)], dim=-1)

    def terms(self, outputs: Tensor, targets: Tensor, config: TrainingConfig) -> Tensor:
        """Return the mean pinball loss [B, T] of standardised targets."""
        return self._pinball(self.standardised(outputs), targets)

    def interval(self, predictions: np.ndarray) -> np.ndarray:
        """Return the lower and the upper quantile [M, T, 2] that predictions [M, P] hold."""
        return self.by_target(predictions)[..., 1:]

    def measures(self, columns: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return the mean pinball loss [M, T], and 1 where the interval holds the target, else 0."""
        _, lower, upper = columns.unbind(-1)
        return {"pinball": self._pinball(columns, targets), "coverage": ((lower <= targets) & (targets <= upper)).double()}

    def _pinball(self, quantiles: Tensor, targets: Tensor) -> Tensor:
        columns = zip(self.levels, quantiles.unbind(-1), strict=True)
        losses = [torch.maximum(level * (targets - one), (level - 1) * (targets - one)) for level, one in columns]
        return torch.stack(losses).mean(0)
