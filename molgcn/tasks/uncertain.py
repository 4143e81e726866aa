"""The base class of regression with uncertainties, whose kinds are one file each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection
from dataclasses import fields
from typing import Any, ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from molgcn.config.training import TrainingConfig
from molgcn.metrics.regression import Values, as_float64
from molgcn.nn.output_layers import TargetColumns
from molgcn.tasks.base import Array
from molgcn.tasks.losses import TermsLoss
from molgcn.tasks.regression import Regression
from molgcn.tasks.transforms import Transforms

_LEAST = 1e-6  # the least value of a positive parameter, so that float32 can divide by it


class UncertainRegression(Regression):
    """Predict each of T targets with its uncertainty, from K outputs of the network.

    Outputs and predictions are ordered target by target. A target has C columns of predictions: first values, then standard deviations.
    The first value is the one that is measured and plotted.
    """

    outputs_per_target: ClassVar[int]  # K, the number of outputs of each target
    endings: ClassVar[tuple[str, ...]]  # the endings of the headers of the C columns
    num_values: ClassVar[int] = 1  # how many of the C columns are values

    @classmethod
    def of(cls, task: Regression, options: TrainingConfig) -> Self:
        """Return the task for the targets of another one, with the options of its loss."""
        return cls(**{one.name: getattr(task, one.name) for one in fields(Regression)})

    @abstractmethod
    def standardised(self, outputs: Tensor) -> Tensor:
        """Turn outputs [B, T, K] into columns of predictions [B, T, C] of standardised targets."""

    @abstractmethod
    def terms(self, outputs: Tensor, targets: Tensor, config: TrainingConfig) -> Tensor:
        """Return the loss [B, T] of outputs [B, T, K] for standardised targets [B, T]."""

    @abstractmethod
    def measures(self, columns: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return terms [M, T] whose means over molecules are metrics, by metric, for predictions [M, T, C] and targets, 0 where missing."""

    def loss(self, config: TrainingConfig, fused: bool) -> TermsLoss:
        return TermsLoss(self, self.settled(config))

    def output_layer(self, *statistics: Tensor) -> nn.Module:
        """Return the layer that turns outputs into values and standard deviations in the targets' units, in the statistics' dtype."""
        return nn.Sequential(TargetColumns(self.standardised, len(self.names)), super().output_layer(*self._of_columns(*statistics)))

    def decode(self, outputs: Tensor, *statistics: Tensor) -> Tensor:
        return self.output_layer(*statistics)(outputs.double())

    def differences(self, actual: Tensor, expected: Tensor, *statistics: Tensor) -> Tensor:
        return super().differences(actual, expected, *self._of_columns(*statistics))

    def digits(self, *statistics: Tensor) -> list[int]:
        return super().digits(*self._of_columns(*statistics))

    def _of_columns(self, *statistics: Tensor) -> tuple[Tensor, ...]:
        """Return the statistics of each column of predictions; the mean of a standard deviation is set to 0."""
        values = torch.tensor(self.holds_values, device=statistics[0].device)
        mean, *others = (one.repeat_interleave(len(self.endings), dim=0) for one in statistics)
        return torch.where(values, mean, 0.0), *others

    @property
    def column_transforms(self) -> Transforms:
        return self.transforms.repeated(len(self.endings))

    @property
    def num_outputs(self) -> int:
        return len(self.names) * self.outputs_per_target

    @property
    def columns(self) -> list[list[str]]:
        """The headers of each target's columns, "<target> [<unit>] <ending>"."""
        return [[f"{label} {ending}" for ending in self.endings] for label in self.labels]

    @property
    def holds_values(self) -> list[bool]:
        return [place < self.num_values for _ in self.names for place in range(len(self.endings))]

    def points(self, predictions: Any) -> Any:
        return predictions[:, :: len(self.endings)]

    def _measured(self, predictions: Array, targets: Array, wanted: Collection[str], weights: np.ndarray | None) -> dict[str, np.ndarray]:
        given, true = as_float64(predictions), as_float64(targets)
        values = Values(self.points(given), true, weights)
        terms = self.measures(self.by_target(given), torch.where(values.known, true, 0.0))
        means = {name: values.mean(term).cpu().numpy() for name, term in terms.items() if name in wanted}
        return super()._measured(predictions, targets, wanted, weights) | means

    def by_target(self, predictions: Any) -> Any:
        """Reshape predictions [..., P], which are a tensor or an array, to [..., T, C]."""
        return predictions.reshape(*predictions.shape[:-1], len(self.names), len(self.endings))

    def combine(self, members: np.ndarray) -> np.ndarray:
        """Combine the predictions of an ensemble's members [N, M, P]: mean values, and standard deviations by the law of total variance.

        A standard deviation is the root of the members' mean variance. To the variance of the last one, which for an evidential model is
        the epistemic one, the variance of the members' values is added.
        """
        columns = self.by_target(members)
        values, deviations = np.split(columns, [self.num_values], axis=-1)
        variances = np.square(deviations).mean(axis=0)
        variances[..., -1:] += columns[..., :1].var(axis=0)
        return np.concatenate([values.mean(axis=0), np.sqrt(variances)], axis=-1).reshape(members.shape[1:])


def positive(outputs: Tensor) -> Tensor:
    """Turn outputs into positive parameters, softplus(outputs) + 1e-6."""
    return F.softplus(outputs) + _LEAST
