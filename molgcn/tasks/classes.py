"""Classification: a network learns the probability of each class of targets that are 0, 1, 2, ..."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from molgcn.config.training import TrainingConfig
from molgcn.data.label_columns import split_labels
from molgcn.data.target_config import TargetConfig
from molgcn.errors import UserError, shown
from molgcn.metrics.classes import METRICS, RISING, weighted_class_metrics
from molgcn.nn.output_layers import ClassProbabilities
from molgcn.tasks.base import Array, Task
from molgcn.tasks.losses import ClassLoss

if TYPE_CHECKING:
    from molgcn.report.page import TargetGroup
    from molgcn.report.subject import Subject

_DIGITS = 7  # as many as float32 has


@dataclass(frozen=True)
class ClassTask(Task):
    """Predict for each of T targets the probabilities of C classes, which labels call 0 to C - 1.

    The statistic is each class's share [T, C] of the labels of the training part.
    """

    class_names: Sequence[Sequence[str]] = ()  # the names of each target's first classes. A class without a name is called by its number
    metrics = logged = METRICS
    rising = RISING
    has_units = False
    in_table = ("roc_auc", "pr_auc", "mcc")

    @classmethod
    def of_columns(cls, names: Sequence[str], units: Sequence[str], num_classes: int, given: TargetConfig) -> Task:
        """Return the task with the classes' names that `dataset.labels` gives."""
        return cls(names, units, num_classes, class_names=tuple(tuple(given.class_names(name)) for name in names))

    def class_name(self, target: int, number: int) -> str | None:
        """Return the name of class `number` of a target, both counted from 0; None where the class has no name."""
        given = self.class_names[target] if self.class_names else ()
        return given[number] if number < len(given) else None

    @property
    def class_titles(self) -> list[list[str]]:
        """The title of each of the C classes of each of the T targets: its name, or its number where it has none."""
        return [[self.class_name(target, one) or str(one) for one in range(self.num_classes)] for target in range(len(self.names))]

    @property
    @abstractmethod
    def advice(self) -> str:
        """The advice about a label that is none of the classes, for messages."""

    def check(self, targets: np.ndarray, rows: Sequence[str] | np.ndarray) -> None:
        """Raise UserError unless labels [M, T] are whole numbers from 0 to C - 1, or missing; see :meth:`Task.check`."""
        wrong = ~np.isnan(targets) & ~np.isin(targets, np.arange(self.num_classes))
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            raise UserError(
                f"Target '{shown(self.names[column])}' has the value {targets[row, column]:g} in row {rows[row]} (counted from 0, without "
                f"the header), which is not a class of task={self.name}. {self.advice}"
            )

    @property
    def described(self) -> str:
        return f"probabilities of {', '.join(self.names)}"

    def statistics_of(self, targets: np.ndarray) -> dict[str, Tensor]:
        """Compute each class's share of the labels [M, T] of the training part."""
        shares = [np.nanmean(np.where(np.isnan(targets), np.nan, targets == one), axis=0) for one in range(self.num_classes)]
        return {"class_frequencies": torch.from_numpy(np.stack(shares, axis=1).astype(np.float32))}

    def statistics_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"class_frequencies": (len(self.names), self.num_classes)}

    def loss(self, config: TrainingConfig, fused: bool) -> ClassLoss:
        return ClassLoss(self.settled(config))

    def for_loss(self, targets: Tensor, dtype: torch.dtype, *statistics: Tensor) -> tuple[Any, ...]:
        """Return labels [B, T], the classes' shares [T, C] and, where labels are weighted, their weights; see :meth:`Task.for_loss`."""
        labels = split_labels(targets, len(self.names))
        return *(values.to(dtype) for values in (labels.targets, *statistics)), *self.weighing(labels, dtype)

    def decode(self, outputs: Tensor, *statistics: Tensor) -> Tensor:
        return self.output_layer()(outputs.double())

    def guess(self, *statistics: Tensor) -> np.ndarray:
        return self.joined(statistics[0].double().cpu().numpy()[None])

    def differences(self, actual: Tensor, expected: Tensor, *statistics: Tensor) -> Tensor:
        return (actual - expected).abs()

    def digits(self, *statistics: Tensor) -> list[int]:
        return [_DIGITS] * self.num_outputs

    def values(
        self, predictions: Array, targets: Array, wanted: Collection[str], weights: np.ndarray | None = None
    ) -> dict[str, np.ndarray]:
        """Compute metrics of every target; see :func:`molgcn.metrics.classes.weighted_class_metrics`."""
        given, true = (values.cpu().numpy() if isinstance(values, Tensor) else values for values in (predictions, targets))
        true = true[:, : len(self.names)]  # without bounds, which other tasks beside this one may have
        columns = zip(self.names, true.T, self.by_target(given), strict=True)
        found = {name: weighted_class_metrics(labels, probabilities, wanted, weights) for name, labels, probabilities in columns}
        return {f"{metric}/{name}": values for name, of_target in found.items() for metric, values in of_target.items()}

    @abstractmethod
    def by_target(self, predictions: np.ndarray) -> list[np.ndarray]:
        """Split predictions [M, P] into each target's probabilities: [M] of class 1, or [M, C] of all classes."""

    @abstractmethod
    def joined(self, probabilities: np.ndarray) -> np.ndarray:
        """Turn the probabilities of every class [M, T, C] into predictions [M, P]."""

    def pictures(self, targets: np.ndarray, predictions: np.ndarray, folder: Path, ending: str = "") -> dict[str, Path]:
        """Draw ROC, precision-recall and calibration curves, or confusion matrices of more than two classes, one row per target."""
        from molgcn.report.class_plots import plot_classes  # Matplotlib takes long to import

        path = folder / f"classes{ending}.png"
        plot_classes(targets, self.by_target(predictions), self.names, path, self.class_titles)
        return {"classes": path}

    def groups(self, subject: Subject) -> list[TargetGroup]:
        """Return the group of all targets: metrics, curves, counts of labels, and drawings of the worst molecules."""
        from molgcn.report.classes import class_group

        return [class_group(subject, self.by_target(subject.predictions), self.class_titles)]


@dataclass(frozen=True)
class Classification(ClassTask):
    """Predict for each of T targets, which are 0 or 1, the probability of class 1, from one output."""

    num_classes: int = 2
    name = "classification"
    losses = ("bce", "focal")

    @property
    def advice(self) -> str:
        return (
            "Expected 0, 1 or an empty cell. Correct it, use task=multiclass for classes 0, 1, 2, ... or task=regression for numbers; "
            "dataset.duplicates=mean and median average the labels of copies, first does not."
        )

    @property
    def columns(self) -> list[list[str]]:
        """The header of each target's column, "<target> probability", followed by the name of class 1 where it has one."""
        return [[f"{label} probability {self.class_name(place, 1) or ''}".rstrip()] for place, label in enumerate(self.labels)]

    def output_layer(self, *statistics: Tensor) -> nn.Module:
        return nn.Sigmoid()

    def by_target(self, predictions: np.ndarray) -> list[np.ndarray]:
        return list(predictions.T)

    def joined(self, probabilities: np.ndarray) -> np.ndarray:
        return probabilities[..., 1]


@dataclass(frozen=True)
class Multiclass(ClassTask):
    """Predict for each of T targets the probabilities of C classes, from C outputs.

    All targets have the same C, which is the number of classes of the target with most.
    """

    name = "multiclass"
    losses = ("ce", "focal")

    @property
    def advice(self) -> str:
        return (
            f"Expected a whole number from 0 to {self.num_classes - 1} or an empty cell. Number the classes from 0, or use "
            "task=regression for numbers."
        )

    @property
    def num_outputs(self) -> int:
        return len(self.names) * self.num_classes

    @property
    def columns(self) -> list[list[str]]:
        """The headers of each target's columns, "<target> probability <class>"."""
        return [[f"{label} probability {one}" for one in titles] for label, titles in zip(self.labels, self.class_titles, strict=True)]

    def output_layer(self, *statistics: Tensor) -> nn.Module:
        return ClassProbabilities(self.num_classes)

    def by_target(self, predictions: np.ndarray) -> list[np.ndarray]:
        return np.split(predictions, len(self.names), axis=1)

    def joined(self, probabilities: np.ndarray) -> np.ndarray:
        """Flatten probabilities [M, T, C] into predictions [M, T * C], target by target."""
        return probabilities.reshape(len(probabilities), -1)
