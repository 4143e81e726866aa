"""Regression that says how sure it is: what its kinds, one file each, have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection
from dataclasses import fields
from typing import Any, ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from molgcn.metrics.regression import Values, as_float64
from molgcn.nn.output_layers import TargetColumns
from molgcn.ops.masked_mean import Weighing, masked_mean, within_bounds
from molgcn.ops.precision import without_bfloat16
from molgcn.tasks.regression import Regression
from molgcn.tasks.transforms import Transforms
from molgcn.training_config import TrainingConfig

_LEAST = 1e-6  # of a parameter that is positive, of standardised targets: float32 can divide by it


class UncertainRegression(Regression):
    """Predict of each of T targets a value and how sure it is, from K outputs of the network.

    Outputs and predictions are ordered target by target. A target's C columns of predictions are values, the first of them the one that
    is measured and plotted, and behind them standard deviations.

    Attributes:
        outputs_per_target: K.
        endings: what the headers of the C columns end with.
        num_values: how many of the columns are values.
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
        """Turn outputs [B, T, K] into columns of predictions [B, T, C], of standardised targets."""

    @abstractmethod
    def terms(self, outputs: Tensor, targets: Tensor, config: TrainingConfig) -> Tensor:
        """Return the loss [B, T] of outputs [B, T, K], given standardised targets [B, T]."""

    @abstractmethod
    def measures(self, columns: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return the terms [M, T], of which the means are metrics, of float64 columns [M, T, C] and targets [M, T], 0 where missing."""

    def loss(self, config: TrainingConfig, fused: bool) -> TermsLoss:
        """Return the loss of all K outputs of each target."""
        return TermsLoss(self, self.settled(config))

    def output_layer(self, *statistics: Tensor) -> nn.Module:
        """Return what turns outputs into values and standard deviations in the targets' units, in the statistics' dtype."""
        return nn.Sequential(TargetColumns(self.standardised, len(self.names)), super().output_layer(*self._of_columns(*statistics)))

    def decode(self, outputs: Tensor, *statistics: Tensor) -> Tensor:
        """Turn outputs into values and standard deviations in the targets' units, float64."""
        return self.output_layer(*statistics)(outputs.double())

    def differences(self, actual: Tensor, expected: Tensor, *statistics: Tensor) -> Tensor:
        """Return how far predictions are from others; see :meth:`Regression.differences`."""
        return super().differences(actual, expected, *self._of_columns(*statistics))

    def digits(self, *statistics: Tensor) -> list[int]:
        """Return the significant digits of each column."""
        return super().digits(*self._of_columns(*statistics))

    def _of_columns(self, *statistics: Tensor) -> tuple[Tensor, ...]:
        """Return the statistics of each column of predictions; a standard deviation has the mean 0."""
        values = torch.tensor(self.holds_values, device=statistics[0].device)
        mean, *others = (one.repeat_interleave(len(self.endings), dim=0) for one in statistics)
        return torch.where(values, mean, 0.0), *others

    @property
    def column_transforms(self) -> Transforms:
        """What is learned of each column of predictions, that of its target."""
        return self.transforms.repeated(len(self.endings))

    @property
    def num_outputs(self) -> int:
        """Columns of outputs, T * K."""
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
        """Return the first column of every target [M, T]."""
        return predictions[:, :: len(self.endings)]

    def _measured(
        self, predictions: Tensor | np.ndarray, targets: Tensor | np.ndarray, wanted: Collection[str], weights: np.ndarray | None
    ) -> dict[str, np.ndarray]:
        """Compute each metric [R, T]: those of the points, and those of how sure they are."""
        given, true = as_float64(predictions), as_float64(targets)
        values = Values(self.points(given), true, weights)
        terms = self.measures(self.by_target(given), torch.where(values.known, true, 0.0))
        means = {name: values.mean(term).cpu().numpy() for name, term in terms.items() if name in wanted}
        return super()._measured(predictions, targets, wanted, weights) | means

    def by_target(self, predictions: Any) -> Any:
        """Return predictions [..., P], a tensor or an array, as [..., T, C]."""
        return predictions.reshape(*predictions.shape[:-1], len(self.names), len(self.endings))

    def combine(self, members: np.ndarray) -> np.ndarray:
        """Return the mean of values, and standard deviations by the law of total variance.

        A standard deviation is the root of the members' mean variance. The last one, of what the model does not know, takes in the variance
        of the members' values too.
        """
        columns = self.by_target(members)
        values, deviations = np.split(columns, [self.num_values], axis=-1)
        variances = np.square(deviations).mean(axis=0)
        variances[..., -1:] += columns[..., :1].var(axis=0)
        return np.concatenate([values.mean(axis=0), np.sqrt(variances)], axis=-1).reshape(members.shape[1:])


def positive(outputs: Tensor) -> Tensor:
    """Return outputs as parameters above 0: their softplus, plus 1e-6."""
    return F.softplus(outputs) + _LEAST


class TermsLoss:
    """The loss of outputs over the targets that are not missing, by PyTorch's operators.

    Args:
        task: gives each target's loss.
        config: names the loss and its options.
    """

    def __init__(self, task: UncertainRegression, config: TrainingConfig) -> None:
        self.options = (config.loss, config.evidential_regularization, config.quantile_alpha)
        self.task = task
        self.config = config

    def __call__(
        self, outputs: Tensor, target: Tensor, mean: Tensor, std: Tensor, weighing: Weighing | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the mean loss and float64 [2], sum and number of its terms.

        Args:
            outputs: [B, T * K].
            target: [B, T], NaN = missing.
            mean: [T], of the training part.
            std: [T], likewise.
            weighing: of the targets, where they do not weigh the same or some are bounds.
        """
        known = ~target.isnan()
        standardised = torch.where(known, (target - mean) / std, 0.0)
        outputs = without_bfloat16(outputs).unflatten(1, (target.shape[1], -1))
        values = self.task.standardised(outputs)[..., 0]
        terms = within_bounds(self.task.terms(outputs, standardised, self.config), values, standardised, weighing)
        return masked_mean(terms, known, weighing)

    def of_model(self, model: Any, batch: Any, *taken: Any) -> tuple[Tensor, Tensor]:
        """Return the same of a model's outputs for a batch."""
        return self(model(batch), *taken)
