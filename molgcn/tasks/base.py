"""The interface of a task: how its targets are learned, measured, shown and written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from molgcn.config.training import TrainingConfig
from molgcn.data.label_columns import LabelColumns
from molgcn.data.target_config import TargetConfig
from molgcn.errors import UserError
from molgcn.ops.masked_mean import Weighing
from molgcn.tasks.losses import Loss

if TYPE_CHECKING:
    from molgcn.report.page import TargetGroup
    from molgcn.report.subject import Subject

Array = Tensor | np.ndarray


@dataclass(frozen=True)
class Task(ABC):
    """The meaning of a network's outputs for T targets, each of which has one column of outputs or several.

    A task's `statistics` are what it takes from the training set. They are buffers of the module that is trained
    (:class:`molgcn.training.predictor.MoleculePredictor`), which hands them to the methods that take `*statistics`, in the order of
    :meth:`statistics_shapes`.

    Attributes:
        names: the names of the T targets.
        units: the units of the targets ("" = none).
        num_classes: C, the number of classes of each target; 0 where targets are numbers.
        target_weights: the weight of each target in the loss; empty where all weigh 1.
        chosen: the metrics that `training.metrics` names, which every validation computes and tables show; empty for the task's own.
        name: the name of the task in `task=` and in checkpoints.
        losses: the losses that `training.loss` may name; `auto` is the first.
        extra: further metrics, which are computed only where `training.metrics` names them.
        metrics: the names of the metrics; the first is shown where there is room for only one.
        logged: the metrics that every validation computes where none are chosen.
        rising: the metrics of which more is better.
        unordered: the metrics of which neither more nor less is better, so that a run cannot be chosen by them.
        in_units: the metrics that are in the target's unit.
        in_table: the metrics that the terminal's table shows, where they were measured.
        has_units: whether predictions have units.
        hidden_head_layers: the number of hidden layers of the head where `model.head_layers` is null.
    """

    names: Sequence[str]
    units: Sequence[str]
    num_classes: int = 0
    target_weights: Sequence[float] = ()
    chosen: Sequence[str] = ()
    name: ClassVar[str]
    losses: ClassVar[tuple[str, ...]]
    metrics: ClassVar[tuple[str, ...]]
    extra: ClassVar[tuple[str, ...]] = ()
    logged: ClassVar[tuple[str, ...]]
    rising: ClassVar[frozenset[str]]
    in_units: ClassVar[frozenset[str]] = frozenset()
    unordered: ClassVar[frozenset[str]] = frozenset()
    in_table: ClassVar[tuple[str, ...]]
    has_units: ClassVar[bool]
    hidden_head_layers: ClassVar[int] = 1

    @classmethod
    def of_columns(cls, names: Sequence[str], units: Sequence[str], num_classes: int, given: TargetConfig) -> Task:
        """Return the task of targets, with what a configuration says of them, such as transforms or names of classes."""
        return cls(names, units, num_classes)

    def settled(self, options: TrainingConfig) -> TrainingConfig:
        """Return the options of training with `loss=auto` replaced by the loss that it means.

        Raises:
            UserError: If an option belongs to another task.
        """
        if options.loss == "auto":
            return replace(options, loss=self.losses[0])  # type: ignore[arg-type]  # one of those that it may be
        if options.loss not in self.losses:
            raise UserError(
                f"training.loss={options.loss} does not go with task={self.name}, which is learned with {' or '.join(self.losses)}. Use "
                "one of these, leave the key out, or name another task with task=regression|classification|multiclass."
            )
        return options

    @abstractmethod
    def check(self, targets: np.ndarray, rows: Sequence[str] | np.ndarray) -> None:
        """Check that this task can learn these values or be measured by them.

        Args:
            targets: [M, T], NaN where missing.
            rows: [M], the row of each molecule in its file, for messages.

        Raises:
            UserError: If it cannot. The message names target, row and value.
        """

    @abstractmethod
    def statistics_of(self, targets: np.ndarray) -> dict[str, Tensor]:
        """Return the statistics of a training part's targets [M, T], NaN where missing, by the names of their buffers."""

    @abstractmethod
    def statistics_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each statistic, by the name of its buffer."""

    @abstractmethod
    def loss(self, config: TrainingConfig, fused: bool) -> Loss:
        """Return the loss that a configuration names (:meth:`settled`), by this project's operators where there are some if `fused`."""

    @abstractmethod
    def for_loss(self, targets: Tensor, dtype: torch.dtype, *statistics: Tensor) -> tuple[Any, ...]:
        """Return the arguments of the loss after the outputs, for labels [B, L] (:mod:`molgcn.data.label_columns`) in the model's dtype."""

    def weighing(self, labels: LabelColumns, dtype: torch.dtype) -> tuple[Weighing, ...]:
        """Return the weights of a loss's terms and the bounds among the targets; empty where all weigh the same and none is a bound.

        They are computed by operators that a CUDA graph can capture.
        """
        if labels.weights is None and not self.target_weights:
            return ()
        of_molecules = torch.ones_like(labels.targets[:, :1]) if labels.weights is None else labels.weights
        of_targets = self.target_weights or [1.0] * len(self.names)
        weights = torch.cat([of_molecules * weight for weight in of_targets], dim=1).to(dtype)
        return (Weighing(weights, None if labels.bounds is None else labels.bounds.to(dtype)),)

    @abstractmethod
    def decode(self, outputs: Tensor, *statistics: Tensor) -> Tensor:
        """Turn a network's outputs [B, O] into predictions, float64 [B, P], whose columns are ordered target by target."""

    def explained(self, outputs: Tensor, *statistics: Tensor) -> Tensor:
        """Return what the contributions of atoms add up to, [B, P]: logits, or values in the targets' units."""
        return outputs

    @abstractmethod
    def output_layer(self, *statistics: Tensor) -> nn.Module:
        """Return the last layer of an exported network, which turns outputs [B, O] into predictions [B, P] in the outputs' dtype."""

    @abstractmethod
    def guess(self, *statistics: Tensor) -> np.ndarray:
        """Return the best prediction without looking at a molecule, such as the mean of the training part, float64 [1, P]."""

    @abstractmethod
    def differences(self, actual: Tensor, expected: Tensor, *statistics: Tensor) -> Tensor:
        """Return the differences of predictions [B, P] from expected ones, scaled so that rounding errors of all targets compare."""

    @abstractmethod
    def digits(self, *statistics: Tensor) -> list[int]:
        """Return the number of significant digits in which each column of predictions is written."""

    @property
    @abstractmethod
    def columns(self) -> list[list[str]]:
        """The headers of each target's columns of predictions."""

    @property
    def holds_values(self) -> list[bool]:
        """Whether each column of predictions holds values, and not standard deviations."""
        return [True] * self.num_predictions

    def spread(self, predictions: np.ndarray) -> np.ndarray | None:
        """Return the standard deviations [M, T] that predictions [M, P] hold; None where the task predicts none."""
        return None

    def combine(self, members: np.ndarray) -> np.ndarray:
        """Combine the predictions of an ensemble's members, float64 [N, M, P], into those of the ensemble [M, P]."""
        return members.mean(axis=0)

    @abstractmethod
    def values(
        self, predictions: Array, targets: Array, wanted: Collection[str], weights: np.ndarray | None = None
    ) -> dict[str, np.ndarray]:
        """Compute metrics of every target, for all molecules or for R resamples of them.

        Args:
            predictions: [M, P], from :meth:`decode`.
            targets: [M, T], NaN where missing, or labels [M, 2 T + 1] with bounds (:func:`molgcn.data.label_columns.metric_labels`).
            wanted: the metrics to compute, some of `metrics`.
            weights: [R, M], how often each resample has each molecule, or None for a single one that has each once.

        Returns:
            The values [R] of each metric by "<metric>/<target>", NaN where undefined.
        """

    def measure(self, predictions: Array, targets: Array, wanted: Collection[str] | None = None) -> dict[str, float]:
        """Compute metrics of every target by "<metric>/<target>", all of them where `wanted` is None; see :meth:`values`."""
        found = self.values(predictions, targets, self.all_metrics if wanted is None else wanted)
        return {key: float(value) for key, (value,) in found.items()}

    @abstractmethod
    def pictures(self, targets: np.ndarray, predictions: np.ndarray, folder: Path, ending: str = "") -> dict[str, Path]:
        """Draw predictions and true values into PNG files.

        Args:
            targets: the true values [M, T], NaN where missing.
            predictions: [M, P], from :meth:`decode`.
            folder: the folder of the files.
            ending: the end of the files' names.

        Returns:
            The files, by the names under which loggers show them.
        """

    def loss_name(self, config: TrainingConfig) -> str:
        return self.settled(config).loss

    def loss_label(self, config: TrainingConfig) -> str:
        """Return the axis label of a learning curve."""
        return f"{self.loss_name(config)} loss"

    @abstractmethod
    def groups(self, subject: Subject) -> list[TargetGroup]:
        """Return what the HTML page about a trained model shows, one group for the targets that share their metrics."""

    def write_report(self, path: Path, subject: Subject) -> None:
        """Write the HTML page about a trained model."""
        from molgcn.report.page import write_page

        write_page(path, subject, self.groups(subject))

    @property
    def parts(self) -> tuple[Task, ...]:
        """The tasks that this one is made of, each with some of its targets; all but a mixed task have themselves only."""
        return (self,)

    def with_parts(self, change: Callable[[Task], Task]) -> Task:
        """Return the task with each of its parts changed."""
        return change(self)

    def of_parts(self, predictions: Any, targets: Any) -> list[tuple[Task, Any, Any]]:
        """Return each part with its columns of predictions and of targets."""
        return [(self, predictions, targets)]

    def statistics_of_parts(self, statistics: Sequence[Tensor]) -> list[Sequence[Tensor]]:
        return [statistics]

    def together(self, predictions: Sequence[np.ndarray]) -> np.ndarray:
        """Join the predictions of each part into predictions [M, P]."""
        return predictions[0]

    @property
    def all_metrics(self) -> tuple[str, ...]:
        """The metrics of every part, those that are computed only on demand where they were chosen."""
        return tuple(dict.fromkeys(metric for part in self.parts for metric in part.known_metrics))

    @property
    def known_metrics(self) -> tuple[str, ...]:
        """The metrics of a part, with the chosen ones of `extra`."""
        return (*self.metrics, *(metric for metric in self.chosen if metric in self.extra))

    def logged_with(self, metric: str | None) -> tuple[str, ...]:
        """Return the metrics that every validation computes where this one is monitored; None stands for the loss."""
        return tuple(one for one in self.all_metrics if one == metric or any(one in (part.chosen or part.logged) for part in self.parts))

    def shown_first(self, monitor: str) -> str:
        """Return the metric that stands first: the monitored one, of "val/<metric>" or "val/<metric>/<target>", or the task's own."""
        return next((metric for metric in self.known_metrics if metric in monitor.split("/")[1:2]), self.first_metric)

    def showing(self, metrics: Sequence[str]) -> Task:
        """Return the task whose validations and tables have these metrics, some of `all_metrics`, in place of its own.

        A part with none of them keeps its own.
        """
        alone = len(self.parts) == 1
        return self.with_parts(
            lambda part: replace(part, chosen=tuple(one for one in metrics if alone or one in (*part.metrics, *part.extra)))
        )

    @property
    def first_metric(self) -> str:
        """The metric that is shown where there is room for only one."""
        return (self.chosen or self.metrics)[0]

    @property
    def num_outputs(self) -> int:
        """The number of a network's outputs, O."""
        return len(self.names)

    def output_places(self, places: Sequence[int]) -> list[int]:
        """Return the columns of a network's outputs that belong to the targets at `places`."""
        each = self.num_outputs // len(self.names)
        return [place * each + number for place in places for number in range(each)]

    @property
    def num_predictions(self) -> int:
        """The number of columns of predictions, P."""
        return sum(map(len, self.columns))

    @property
    def described(self) -> str:
        """The predicted quantities, in words."""
        return ", ".join(f"{name} in {unit}" if unit else name for name, unit in zip(self.names, self.units, strict=True))

    @property
    def labels(self) -> list[str]:
        """The headers of the targets' columns: "gap [eV]", or "logp" of a target without a unit."""
        return [f"{name} [{unit}]" if unit else name for name, unit in zip(self.names, self.units, strict=True)]

    def keys(self, part: str, wanted: Sequence[str] | None = None) -> list[str]:
        """Return the names under which a part's metrics are logged, "<part>/<metric>/<target>", metric by metric.

        Args:
            part: the part of the set: "train", "val" or "test".
            wanted: the metrics, some of `metrics`; None stands for those that every validation computes.
        """
        chosen = (self.chosen or self.logged) if wanted is None else wanted
        return [f"{part}/{metric}/{name}" for metric in self.known_metrics if metric in chosen for name in self.names]
