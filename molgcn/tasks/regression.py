"""Regression of targets that are numbers with units: a network learns standardised values."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from molgcn.config.training import TrainingConfig
from molgcn.data.digits import FLOAT32_DIGITS, significant_digits
from molgcn.data.label_columns import split_labels
from molgcn.data.target_config import TargetConfig
from molgcn.errors import UserError, shown
from molgcn.metrics.regression import BOUNDED, IN_UNITS, LOGGED, METRICS, RISING, as_float64, bounded_metrics, regression_metrics
from molgcn.nn.output_layers import Rescale
from molgcn.tasks.base import Array, Task
from molgcn.tasks.losses import Loss, MaskedLoss
from molgcn.tasks.transforms import Inverse, Transforms

if TYPE_CHECKING:
    from molgcn.report.page import TargetGroup
    from molgcn.report.subject import Subject


@dataclass(frozen=True)
class Regression(Task):
    """Predict T numbers of a molecule, in the targets' units.

    The statistics are each target's mean [T] and standard deviation [T] over the training set's known values, after the transforms. They
    have the targets' dtype, which is float64 where float32 has too few digits. The transforms' curves follow where there are some.
    """

    transforms: Transforms = field(default_factory=Transforms)

    name = "regression"
    losses = ("l1", "mse", "huber", "mve", "evidential", "quantile")
    metrics: ClassVar[tuple[str, ...]] = METRICS
    extra: ClassVar[tuple[str, ...]] = tuple(BOUNDED)
    logged: ClassVar[tuple[str, ...]] = LOGGED
    rising, in_units = (kinds | {metric for metric, of in BOUNDED.items() if of in kinds} for kinds in (RISING, IN_UNITS))
    in_table = ("mae", "rmse", "r2", "nll", "coverage")
    has_units = True
    hidden_head_layers = 2

    def settled(self, options: TrainingConfig) -> TrainingConfig:
        """Return the options of training with `loss=auto` replaced by the loss that it means; see :meth:`Task.settled`."""
        if options.class_weights is not None:
            raise UserError(
                f"training.class_weights={options.class_weights} does not go with task=regression, whose targets have no classes. Leave it "
                "out, or use task=classification or multiclass."
            )
        return super().settled(options)

    @classmethod
    def of_columns(cls, names: Sequence[str], units: Sequence[str], num_classes: int, given: TargetConfig) -> Task:
        """Return the task with the transforms that `dataset.transforms` names."""
        chosen = given.given("transforms")
        return cls(names, units, num_classes, transforms=Transforms(tuple(chosen.get(name, "standardize") for name in names)))

    def check(self, targets: np.ndarray, rows: Sequence[str] | np.ndarray) -> None:
        """Raise UserError unless targets [M, T] are above 0 where their logarithm is learned; see :meth:`Task.check`."""
        for place in self.transforms.places("log10"):
            wrong = np.flatnonzero(targets[:, place] <= 0)
            if len(wrong):
                raise UserError(
                    f"Target '{shown(self.names[place])}' has the value {targets[wrong[0], place]:g} in row {rows[wrong[0]]} (counted from "
                    "0, without the header), which has no logarithm. Correct it or leave the cell empty, or use quantile_normal or "
                    "standardize in place of log10 in dataset.transforms."
                )

    def statistics_of(self, targets: np.ndarray) -> dict[str, Tensor]:
        """Compute mean and standard deviation of known targets [M, T], in their dtype.

        The standard deviation of a target that does not vary is set to 1.
        """
        curves = {"target_curves": self.transforms.fit(targets)} if self.transforms.fits else {}
        values = self.transforms.forward(torch.from_numpy(targets.astype(np.float64)), *curves.values()).numpy()
        varies = np.nanmin(targets, axis=0) < np.nanmax(targets, axis=0)
        found = np.nanmean(values, axis=0), np.where(varies, np.nanstd(values, axis=0), 1.0)
        mean, std = (torch.from_numpy(one.astype(targets.dtype)) for one in found)
        return {"target_mean": mean, "target_std": std, **curves}

    def statistics_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of mean, standard deviation and curves."""
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("target_mean", "target_std"), (len(self.names),))
        return shapes | ({"target_curves": self.transforms.shape()} if self.transforms.fits else {})

    def loss(self, config: TrainingConfig, fused: bool) -> Loss:
        return MaskedLoss(self.settled(config), fused)

    def loss_label(self, config: TrainingConfig) -> str:
        """Return the axis label of a learning curve, which says that the loss is of standardised targets."""
        return f"{super().loss_label(config)} (targets standardised)"

    def for_loss(self, targets: Tensor, dtype: torch.dtype, *statistics: Tensor) -> tuple[Any, ...]:
        """Return targets [B, T], mean [T], standard deviation [T] and, where there are some, weights and bounds.

        Float64 targets of a float32 model are standardised here, in float64, and come with mean 0 and standard deviation 1.
        """
        mean, std, *curves = statistics
        labels = split_labels(targets, len(self.names))
        targets, weighing = labels.targets, self.weighing(labels, dtype)
        if self.transforms.change:
            targets = self.transforms.forward(targets.double(), *curves).to(targets.dtype)
        if torch.promote_types(targets.dtype, mean.dtype) == dtype:
            return targets, mean, std, *weighing
        zero = torch.zeros_like(mean, dtype=torch.float32)
        return ((targets - mean) / std).float(), zero, zero + 1, *weighing

    @property
    def column_transforms(self) -> Transforms:
        return self.transforms

    def decode(self, outputs: Tensor, *statistics: Tensor) -> Tensor:
        """Turn standardised outputs [B, T] into values in the targets' units, float64 [B, T]."""
        mean, std, *curves = statistics
        return self.transforms.inverse(outputs.double() * std + mean, *curves)

    def guess(self, *statistics: Tensor) -> np.ndarray:
        """Return the training part's means in the targets' units, float64 [1, T]; they are means after the transforms, turned back."""
        return self.decode(torch.zeros(1, len(self.names), device=statistics[0].device), *statistics).double().cpu().numpy()

    def explained(self, outputs: Tensor, *statistics: Tensor) -> Tensor:
        return self.decode(outputs, *statistics)

    def output_layer(self, *statistics: Tensor) -> nn.Module:
        """Return the layer that turns outputs into values in the targets' units, in the statistics' dtype."""
        mean, std, *curves = statistics
        rescale = Rescale(mean, std)
        return nn.Sequential(rescale, Inverse(self.column_transforms, *curves)) if self.transforms.change else rescale

    def differences(self, actual: Tensor, expected: Tensor, *statistics: Tensor) -> Tensor:
        """Return |actual - expected| / (|expected - mean| + standard deviation), of logarithms where these are learned."""
        mean, std = self._scale(*statistics)
        if logarithms := self.column_transforms.places("log10"):
            actual, expected = actual.clone(), expected.clone()
            for values in (actual, expected):
                values[:, logarithms] = values[:, logarithms].log10()
        return (actual - expected).abs() / ((expected - mean).abs() + std)

    def digits(self, *statistics: Tensor) -> list[int]:
        """Return the number of significant digits that resolve each target's standard deviation."""
        found = [significant_digits(*scale) for scale in zip(*(values.tolist() for values in self._scale(*statistics)), strict=True)]
        for place in self.column_transforms.places("log10"):
            found[place] = FLOAT32_DIGITS
        return found

    def _scale(self, mean: Tensor, std: Tensor, curves: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation of each target's values, or of their logarithms where these are learned."""
        mean, std = mean.clone(), std.clone()
        for place in self.column_transforms.places("quantile_normal"):
            assert curves is not None
            values = curves[place, 0]
            mean[place], std[place] = values.mean(), values.std() if values[0] < values[-1] else 1.0
        return mean, std

    @property
    def columns(self) -> list[list[str]]:
        """The header of each target's column, "<target> [<unit>] predicted"."""
        return [[f"{label} predicted"] for label in self.labels]

    def values(
        self, predictions: Array, targets: Array, wanted: Collection[str], weights: np.ndarray | None = None
    ) -> dict[str, np.ndarray]:
        """Compute metrics of every target; see :mod:`molgcn.metrics.regression`."""
        labels = split_labels(as_float64(targets), len(self.names))
        found = self._measured(predictions, labels.exact, wanted, weights)
        found |= bounded_metrics(self.points(predictions), labels.targets, labels.bounds, wanted, weights)
        return {f"{metric}/{name}": found[metric][:, place] for place, name in enumerate(self.names) for metric in found}

    def _measured(self, predictions: Array, targets: Array, wanted: Collection[str], weights: np.ndarray | None) -> dict[str, np.ndarray]:
        return regression_metrics(self.points(predictions), targets, wanted, weights)

    def points(self, predictions: Any) -> Any:
        """Return the value [M, T] of each target among predictions [M, P], which are a tensor or an array."""
        return predictions

    def interval(self, predictions: np.ndarray) -> np.ndarray | None:
        """Return the lower and the upper quantile [M, T, 2] that predictions [M, P] hold; None where they hold none."""
        return None

    def pictures(self, targets: np.ndarray, predictions: np.ndarray, folder: Path, ending: str = "") -> dict[str, Path]:
        """Draw predicted against true values, one panel a target."""
        from molgcn.report.plots import plot_parity  # Matplotlib takes long to import

        path = folder / f"parity{ending}.png"
        plot_parity(targets, self.points(predictions), self.names, self.units, path)
        return {"parity": path}

    def groups(self, subject: Subject) -> list[TargetGroup]:
        """Return the group of all targets: errors, parity plots, errors by size and scaffold, and drawings of the worst molecules."""
        from molgcn.report.numbers import number_group

        return [number_group(replace(subject, predictions=self.points(subject.predictions)))]
