"""What every task says: how its targets are learnt, measured, shown and written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from rich.markup import escape
from rich.table import Table
from torch import Tensor

from molgcn.config import TrainingConfig
from molgcn.data.packed import PackedMolecules
from molgcn.errors import shown
from molgcn.metrics import error_text

if TYPE_CHECKING:
    from molgcn.report.page import Subject


@dataclass(frozen=True)
class Task(ABC):
    """Give a network's T outputs their meaning.

    What a task takes from the training set, its `statistics`, are buffers of the module that is trained
    (:class:`molgcn.training.task_module.TaskModule`), which hands them to the methods that need them.

    Attributes:
        names: the T targets.
        units: their units ("" = none).
        metrics: the names of the metrics; the first is the one that stands for the others where there is room for one.
        plot_name: what the picture of predictions is called, in file names and in loggers.
    """

    names: Sequence[str]
    units: Sequence[str]
    metrics: ClassVar[tuple[str, ...]]
    plot_name: ClassVar[str]

    @abstractmethod
    def loss(self, config: TrainingConfig, fused: bool) -> Callable[..., tuple[Tensor, Tensor]]:
        """Return the loss: of outputs and what :meth:`for_loss` returns, a mean and float64 [2], sum and number of its terms.

        Args:
            config: names the loss and its options.
            fused: use this project's operators where there are some.
        """

    @abstractmethod
    def for_loss(self, targets: Tensor, dtype: torch.dtype, *statistics: Tensor) -> tuple[Tensor, ...]:
        """Return targets [B, T] and statistics as the loss takes them for a model of this dtype."""

    @abstractmethod
    def decode(self, outputs: Tensor, *statistics: Tensor) -> Tensor:
        """Turn a network's outputs [B, T] into predictions, float64 [B, T]."""

    @abstractmethod
    def digits(self, *statistics: Tensor) -> list[int]:
        """Return for each target the significant digits in which predictions are written."""

    @abstractmethod
    def measure(self, predictions: Tensor | np.ndarray, targets: Tensor | np.ndarray) -> dict[str, float]:
        """Compute every metric of every target.

        Args:
            predictions: [M, T], as of :meth:`decode`.
            targets: [M, T], NaN where missing.

        Returns:
            Values by "<metric>/<target>", NaN where undefined.
        """

    @abstractmethod
    def write_predictions(self, path: Path, molecules: PackedMolecules, predictions: np.ndarray) -> None:
        """Write a CSV file of true and predicted values, one line a molecule.

        Args:
            path: the file.
            molecules: M molecules with their targets.
            predictions: [M, T], as of :meth:`decode`.
        """

    @abstractmethod
    def plot(self, targets: np.ndarray, predictions: np.ndarray, path: Path) -> None:
        """Draw predicted against true values [M, T] into a PNG file."""

    @abstractmethod
    def write_report(self, path: Path, subject: Subject) -> None:
        """Write the HTML page about a trained model."""

    @property
    def labels(self) -> list[str]:
        """The headers of the targets' columns: "gap [eV]", or "logp" of a target without a unit."""
        return [f"{name} [{unit}]" if unit else name for name, unit in zip(self.names, self.units, strict=True)]

    def keys(self, part: str) -> list[str]:
        """Return the names under which a part's metrics are logged, "<part>/<metric>/<target>", metric by metric."""
        return [f"{part}/{metric}/{name}" for metric in self.metrics for name in self.names]

    def table(self, title: str, values: Mapping[str, float], parts: Sequence[str]) -> Table:
        """Make a table of one row a target: the first metric of every part, the others of the last one.

        Args:
            title: line above the table.
            values: by "<part>/<metric>/<target>"; NaN shows as "-".
            parts: the parts to show.
        """
        table = Table(title=escape(title), title_justify="left")
        table.add_column("target")
        table.add_column("unit")
        columns = [*((part, self.metrics[0]) for part in parts), *((parts[-1], metric) for metric in self.metrics[1:])]
        for part, metric in columns:
            table.add_column(f"{part} {metric.upper()}", justify="right")
        for name, unit in zip(self.names, self.units, strict=True):
            cells = [values[f"{part}/{metric}/{name}"] for part, metric in columns]
            table.add_row(escape(shown(name)), escape(unit) or "-", *map(error_text, cells))
        return table
