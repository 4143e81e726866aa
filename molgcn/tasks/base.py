"""What every task says: how its targets are learnt, measured, shown and written."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from molgcn.data.digits import digits_of
from molgcn.data.packed import PackedMolecules
from molgcn.errors import UserError
from molgcn.spreadsheet import Writer
from molgcn.training_config import TrainingConfig

if TYPE_CHECKING:
    from molgcn.report.subject import Subject


class Loss(Protocol):
    """A task's loss over the targets that are not missing.

    Attributes:
        options: what it computes by beside tensors; captured steps are made anew where it changes.
    """

    options: tuple[Any, ...]

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Return the mean and float64 [2], sum and number of its terms, of outputs and what :meth:`Task.for_loss` returns."""

    def of_model(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Return the same of a model's outputs for a batch, in fewer operators where there are some."""


@dataclass(frozen=True)
class Task(ABC):
    """Give a network's outputs their meaning: of T targets, each in one column of outputs or several.

    What a task takes from the training set, its `statistics`, are buffers of the module that is trained
    (:class:`molgcn.training.task_module.TaskModule`), which hands them to the methods that need them.

    Attributes:
        names: the T targets.
        units: their units ("" = none).
        num_classes: C, classes of each target; 0 where targets are numbers.
        name: what `task=` and checkpoints call it.
        losses: what `training.loss` may name; the first is that of `auto`.
        metrics: the names of the metrics; the first is the one that stands for the others where there is room for one.
        logged: those of them that every validation computes.
        rising: those of them of which more is better.
        in_units: those of them that are in the target's unit.
        in_table: those that the terminal's table shows.
        has_units: whether predictions have units.
        plot_name: what the picture of predictions is called, in file names and in loggers.
    """

    names: Sequence[str]
    units: Sequence[str]
    num_classes: int = 0
    name: ClassVar[str]
    losses: ClassVar[tuple[str, ...]]
    metrics: ClassVar[tuple[str, ...]]
    logged: ClassVar[tuple[str, ...]]
    rising: ClassVar[frozenset[str]]
    in_units: ClassVar[frozenset[str]] = frozenset()
    in_table: ClassVar[tuple[str, ...]]
    has_units: ClassVar[bool]
    plot_name: ClassVar[str]

    @classmethod
    def settled(cls, options: TrainingConfig) -> TrainingConfig:
        """Return the options of training with `loss=auto` named.

        Raises:
            UserError: for an option that belongs to another task.
        """
        if options.loss == "auto":
            return replace(options, loss=cls.losses[0])  # type: ignore[arg-type]  # one of those that it may be
        if options.loss not in cls.losses:
            raise UserError(
                f"training.loss={options.loss} does not go with task={cls.name}, which is learned with {' or '.join(cls.losses)}. Use one "
                "of these, leave the key out, or name another task with task=regression|classification|multiclass."
            )
        return options

    @abstractmethod
    def check(self, targets: np.ndarray, rows: np.ndarray) -> None:
        """Check that these are values which this task can learn or be measured by.

        Args:
            targets: [M, T], NaN where missing.
            rows: int [M], their rows in the file.

        Raises:
            UserError: naming target, row and value.
        """

    @abstractmethod
    def statistics_of(self, targets: np.ndarray) -> dict[str, Tensor]:
        """Compute the statistics of a training part's targets [M, T], by the names of their buffers."""

    @abstractmethod
    def statistics_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each statistic."""

    @abstractmethod
    def loss(self, config: TrainingConfig, fused: bool) -> Loss:
        """Return the loss.

        Args:
            config: names the loss and its options; see :meth:`settled`.
            fused: use this project's operators where there are some.
        """

    @abstractmethod
    def for_loss(self, targets: Tensor, dtype: torch.dtype, *statistics: Tensor) -> tuple[Tensor, ...]:
        """Return targets [B, T] and statistics as the loss takes them for a model of this dtype."""

    @abstractmethod
    def decode(self, outputs: Tensor, *statistics: Tensor) -> Tensor:
        """Turn a network's outputs [B, P] into predictions, float64 [B, P]: T, or of T targets with C classes T * C, target by target."""

    @abstractmethod
    def output_layer(self, *statistics: Tensor) -> nn.Module:
        """Return what an exported network ends with: outputs [B, P] to predictions in the outputs' dtype."""

    @abstractmethod
    def guess(self, *statistics: Tensor) -> np.ndarray:
        """Return predictions float64 [1, P] that look at no molecule: the best that the statistics alone tell."""

    def spread(self, predictions: np.ndarray) -> np.ndarray | None:
        """Return the standard deviations [M, T] that predictions [M, P] hold, or None where they hold none."""
        return None

    @abstractmethod
    def differences(self, actual: Tensor, expected: Tensor, *statistics: Tensor) -> Tensor:
        """Return how far predictions [B, P] are from others, in units in which a network's rounding is alike for all targets."""

    @abstractmethod
    def digits(self, *statistics: Tensor) -> list[int]:
        """Return for each column of predictions the significant digits in which they are written."""

    @property
    @abstractmethod
    def columns(self) -> list[list[str]]:
        """The headers of each target's columns of predictions."""

    @abstractmethod
    def values(
        self,
        predictions: Tensor | np.ndarray,
        targets: Tensor | np.ndarray,
        wanted: Collection[str],
        weights: np.ndarray | None = None,
    ) -> dict[str, np.ndarray]:
        """Compute metrics of every target, for all molecules or for R resamples of them.

        Args:
            predictions: [M, P], as of :meth:`decode`.
            targets: [M, T], NaN where missing.
            wanted: some of `metrics`.
            weights: [R, M], how often each resample has a molecule, or None for a single one that has each once.

        Returns:
            [R] by "<metric>/<target>", NaN where undefined.
        """

    def measure(
        self, predictions: Tensor | np.ndarray, targets: Tensor | np.ndarray, wanted: Collection[str] | None = None
    ) -> dict[str, float]:
        """Compute metrics of every target by "<metric>/<target>", all of them or those that are wanted; see :meth:`values`."""
        found = self.values(predictions, targets, self.metrics if wanted is None else wanted)
        return {key: float(value) for key, (value,) in found.items()}

    @abstractmethod
    def plot(self, targets: np.ndarray, predictions: np.ndarray, path: Path) -> None:
        """Draw predictions [M, P] of true values [M, T] into a PNG file."""

    def loss_label(self, config: TrainingConfig) -> str:
        """Return what the axis of a learning curve says."""
        return f"{self.settled(config).loss} loss"

    @abstractmethod
    def write_report(self, path: Path, subject: Subject) -> None:
        """Write the HTML page about a trained model."""

    @property
    def num_outputs(self) -> int:
        """Columns of outputs and of predictions, P."""
        return len(self.names)

    @property
    def described(self) -> str:
        """What is predicted, in words."""
        return ", ".join(f"{name} in {unit}" if unit else name for name, unit in zip(self.names, self.units, strict=True))

    @property
    def labels(self) -> list[str]:
        """The headers of the targets' columns: "gap [eV]", or "logp" of a target without a unit."""
        return [f"{name} [{unit}]" if unit else name for name, unit in zip(self.names, self.units, strict=True)]

    def keys(self, part: str, wanted: Sequence[str] | None = None) -> list[str]:
        """Return the names under which a part's metrics are logged, "<part>/<metric>/<target>", metric by metric."""
        return [f"{part}/{metric}/{name}" for metric in (self.logged if wanted is None else wanted) for name in self.names]

    def write_predictions(self, path: Path, molecules: PackedMolecules, predictions: np.ndarray) -> None:
        """Write a CSV file of `row`, `smiles`, and of every target the true value and its columns of predictions, one line a molecule.

        Args:
            path: the file.
            molecules: M molecules with their targets.
            predictions: [M, P], as of :meth:`decode`.
        """
        columns = self.columns
        header = ["row", "smiles", *(name for pair in zip(self.labels, columns, strict=True) for name in (pair[0], *pair[1]))]
        smiles = molecules.smiles or [""] * len(molecules)
        digits = [(digits_of(values), len(names)) for values, names in zip(molecules.targets.T, columns, strict=True)]
        forms = [f".{number}g" for number, count in digits for _ in range(1 + count)]
        places = np.cumsum([len(names) for names in columns])[:-1]
        with open(path, "w", newline="") as file:
            writer = Writer(file)
            writer.writerow(header)
            for i, (true, predicted) in enumerate(zip(molecules.targets, predictions, strict=True)):
                values = [value for one, some in zip(true, np.split(predicted, places), strict=True) for value in (one, *some)]
                writer.writerow([int(molecules.rows[i]), smiles[i], *map(_cell, values, forms)])


def _cell(value: float, form: str) -> str:
    return "" if math.isnan(value) else format(value, form)
