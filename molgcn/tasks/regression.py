"""Regression: targets are numbers with units, of which a network learns standardised values."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from molgcn.data.digits import significant_digits
from molgcn.errors import UserError
from molgcn.metrics.regression import IN_UNITS, LOGGED, METRICS, RISING, regression_metrics
from molgcn.nn.output_layers import Rescale
from molgcn.tasks.base import Task
from molgcn.tasks.masked_loss import MaskedLoss
from molgcn.training_config import TrainingConfig

if TYPE_CHECKING:
    from molgcn.report.subject import Subject


class Regression(Task):
    """Predict T numbers of a molecule, in the targets' units.

    The statistics are each target's mean [T] and standard deviation [T] over the training set's known values, in the targets' dtype:
    float64 where float32 has too few digits.
    """

    name = "regression"
    losses = ("l1", "mse", "huber")
    metrics, logged, rising, in_units = METRICS, LOGGED, RISING, IN_UNITS
    in_table = ("mae", "rmse", "r2")
    has_units = True
    plot_name = "parity"

    @classmethod
    def settled(cls, options: TrainingConfig) -> TrainingConfig:
        """Return the options of training with `loss=auto` named; see :meth:`Task.settled`."""
        if options.class_weights is not None:
            raise UserError(
                f"training.class_weights={options.class_weights} does not go with task=regression, whose targets have no classes. Leave it "
                "out, or use task=classification or multiclass."
            )
        return super().settled(options)

    def check(self, targets: np.ndarray, rows: np.ndarray) -> None:
        """Accept any number."""

    def statistics_of(self, targets: np.ndarray) -> dict[str, Tensor]:
        """Compute mean and standard deviation of known targets [M, T], in their dtype; a target that does not vary gets 1."""
        values, varies = targets.astype(np.float64), np.nanmin(targets, axis=0) < np.nanmax(targets, axis=0)
        found = np.nanmean(values, axis=0), np.where(varies, np.nanstd(values, axis=0), 1.0)
        mean, std = (torch.from_numpy(one.astype(targets.dtype)) for one in found)
        return {"target_mean": mean, "target_std": std}

    def statistics_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of mean and standard deviation."""
        return dict.fromkeys(("target_mean", "target_std"), (len(self.names),))

    def loss(self, config: TrainingConfig, fused: bool) -> MaskedLoss:
        """Return the loss that `training.loss` names, over the targets that are not missing."""
        return MaskedLoss(self.settled(config), fused)

    def loss_label(self, config: TrainingConfig) -> str:
        """Return what the axis of a learning curve says."""
        return f"{super().loss_label(config)} (targets standardised)"

    def for_loss(self, targets: Tensor, dtype: torch.dtype, *statistics: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return targets, mean and standard deviation; float64 targets of a float32 model are standardised before."""
        mean, std = statistics
        if torch.promote_types(targets.dtype, mean.dtype) == dtype:
            return targets, mean, std
        zero = torch.zeros_like(mean, dtype=torch.float32)
        return ((targets - mean) / std).float(), zero, zero + 1

    def decode(self, outputs: Tensor, *statistics: Tensor) -> Tensor:
        """Turn standardised outputs [B, T] into values in the targets' units, float64."""
        mean, std = statistics
        return outputs.double() * std + mean

    def guess(self, *statistics: Tensor) -> np.ndarray:
        """Return the training part's means [1, T]."""
        return statistics[0].double().cpu().numpy()[None]

    def output_layer(self, *statistics: Tensor) -> nn.Module:
        """Return what turns outputs into values in the targets' units, in the statistics' dtype."""
        return Rescale(*statistics)

    def differences(self, actual: Tensor, expected: Tensor, *statistics: Tensor) -> Tensor:
        """Return |a - b| / (|b - mean| + standard deviation)."""
        mean, std = statistics
        return (actual - expected).abs() / ((expected - mean).abs() + std)

    def digits(self, *statistics: Tensor) -> list[int]:
        """Return the significant digits that show each target's spread."""
        return [significant_digits(*scale) for scale in zip(*(values.tolist() for values in statistics), strict=True)]

    @property
    def columns(self) -> list[list[str]]:
        """The header of each target's column, "<target> [<unit>] predicted"."""
        return [[f"{label} predicted"] for label in self.labels]

    def values(
        self,
        predictions: Tensor | np.ndarray,
        targets: Tensor | np.ndarray,
        wanted: Collection[str],
        weights: np.ndarray | None = None,
    ) -> dict[str, np.ndarray]:
        """Compute metrics of every target; see :func:`molgcn.metrics.regression.regression_metrics`."""
        found = regression_metrics(self.points(predictions), targets, wanted, weights)
        return {f"{metric}/{name}": found[metric][:, place] for place, name in enumerate(self.names) for metric in found}

    def points(self, predictions: Any) -> Any:
        """Return one value a target [M, T] of predictions [M, P], a tensor or an array."""
        return predictions

    def plot(self, targets: np.ndarray, predictions: np.ndarray, path: Path) -> None:
        """Draw predicted against true values, one panel a target."""
        from molgcn.report.plots import plot_parity  # Matplotlib takes long to import

        plot_parity(targets, predictions, self.names, self.units, path)

    def write_report(self, path: Path, subject: Subject) -> None:
        """Write the page: errors with units, parity, errors by size and scaffold, and the worst molecules drawn."""
        from molgcn.report.page import write_report

        write_report(path, subject)
