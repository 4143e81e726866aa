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
from molgcn.ops.masked_mean import Weighing, masked_mean, within_bounds
from molgcn.ops.precision import without_bfloat16
from molgcn.tasks.regression import Regression
from molgcn.tasks.transforms import Transforms

_LEAST = 1e-6  # the least value of a positive parameter, so that float32 can divide by it


class UncertainRegression(Regression):
    """Predict each of T targets with its uncertainty, from K outputs of the network.

    Outputs and predictions are ordered target by target. A target has C columns of predictions: first values, then standard deviations.
    The first value is the one that is measured and plotted.

    Attributes:
        outputs_per_target: K, the number of outputs of each target.
        endings: the endings of the headers of the C columns.
        num_values: how many of the C columns are values.
    """

    outputs_per_target: ClassVar[int]
    endings: ClassVar[tuple[str, ...]]
    num_values: ClassVar[int] = 1

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
        """Return terms [M, T] whose means over molecules are metrics, by the names of the metrics.

        Args:
            columns: float64 [M, T, C], predictions.
            targets: float64 [M, T], 0 where missing.
        """

    def loss(self, config: TrainingConfig, fused: bool) -> TermsLoss:
        """Return the loss that `training.loss` names, of the K outputs of each target."""
        return TermsLoss(self, self.settled(config))

    def output_layer(self, *statistics: Tensor) -> nn.Module:
        """Return the layer that turns outputs into values and standard deviations in the targets' units, in the statistics' dtype."""
        return nn.Sequential(TargetColumns(self.standardised, len(self.names)), super().output_layer(*self._of_columns(*statistics)))

    def decode(self, outputs: Tensor, *statistics: Tensor) -> Tensor:
        """Turn outputs [B, O] into values and standard deviations in the targets' units, float64 [B, P]."""
        return self.output_layer(*statistics)(outputs.double())

    def differences(self, actual: Tensor, expected: Tensor, *statistics: Tensor) -> Tensor:
        """Return the scaled differences of predictions from expected ones; see :meth:`Regression.differences`."""
        return super().differences(actual, expected, *self._of_columns(*statistics))

    def digits(self, *statistics: Tensor) -> list[int]:
        """Return the number of significant digits in which each column of predictions is written."""
        return super().digits(*self._of_columns(*statistics))

    def _of_columns(self, *statistics: Tensor) -> tuple[Tensor, ...]:
        """Return the statistics of each column of predictions; the mean of a standard deviation is set to 0."""
        values = torch.tensor(self.holds_values, device=statistics[0].device)
        mean, *others = (one.repeat_interleave(len(self.endings), dim=0) for one in statistics)
        return torch.where(values, mean, 0.0), *others

    @property
    def column_transforms(self) -> Transforms:
        """The transform of each column of predictions, which is that of its target."""
        return self.transforms.repeated(len(self.endings))

    @property
    def num_outputs(self) -> int:
        """The number of a network's outputs, O = T * K."""
        return len(self.names) * self.outputs_per_target

    @property
    def columns(self) -> list[list[str]]:
        """The headers of each target's columns, "<target> [<unit>] <ending>"."""
        return [[f"{label} {ending}" for ending in self.endings] for label in self.labels]

    @property
    def holds_values(self) -> list[bool]:
        """Whether each column of predictions holds values, and not standard deviations."""
        return [place < self.num_values for _ in self.names for place in range(len(self.endings))]

    def points(self, predictions: Any) -> Any:
        """Return the first column of every target [M, T] among predictions [M, P]."""
        return predictions[:, :: len(self.endings)]

    def _measured(
        self, predictions: Tensor | np.ndarray, targets: Tensor | np.ndarray, wanted: Collection[str], weights: np.ndarray | None
    ) -> dict[str, np.ndarray]:
        """Compute each metric [R, T] for R resamples of the molecules: those of values and those of uncertainties."""
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


class TermsLoss:
    """Computes the loss of outputs over the targets that are not missing, by PyTorch's operators.

    Args:
        task: computes the terms of the loss.
        config: names the loss and its options.
    """

    def __init__(self, task: UncertainRegression, config: TrainingConfig) -> None:
        self.options = (config.loss, config.evidential_regularization, config.quantile_alpha)
        self.task = task
        self.config = config

    def __call__(
        self, outputs: Tensor, target: Tensor, mean: Tensor, std: Tensor, weighing: Weighing | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the mean loss and the sum and number of its terms, float64 [2].

        Args:
            outputs: [B, T * K], the outputs of a network.
            target: [B, T], targets before they are standardised, NaN where missing.
            mean: [T], the mean by which each target is standardised.
            std: [T], the standard deviation by which each target is standardised.
            weighing: the targets' weights and bounds, or None where all weigh the same and none is a bound.
        """
        known = ~target.isnan()
        standardised = torch.where(known, (target - mean) / std, 0.0)
        outputs = without_bfloat16(outputs).unflatten(1, (target.shape[1], -1))
        values = self.task.standardised(outputs)[..., 0]
        terms = within_bounds(self.task.terms(outputs, standardised, self.config), values, standardised, weighing)
        return masked_mean(terms, known, weighing)

    def of_model(self, model: Any, batch: Any, *taken: Any) -> tuple[Tensor, Tensor]:
        """Return the loss of a model's outputs for a batch; see :meth:`__call__`."""
        return self(model(batch), *taken)
