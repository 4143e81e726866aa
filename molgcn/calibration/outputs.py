"""What a task's predictions say of each target, in the form that calibration takes them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from molgcn.tasks.base import Task
from molgcn.tasks.classes import ClassTask
from molgcn.tasks.mixed import Mixed
from molgcn.tasks.regression import Regression


@dataclass(frozen=True)
class Numbers:
    """One target's predicted numbers of M molecules, float64.

    Attributes:
        values: [M].
        std: [M], the standard deviations that the network predicts, or None.
        interval: [M, 2], a lower and an upper quantile that it predicts, or None.
    """

    values: np.ndarray
    std: np.ndarray | None = None
    interval: np.ndarray | None = None

    def __getitem__(self, index: np.ndarray) -> Numbers:
        """Return those of some molecules."""
        return Numbers(self.values[index], *(None if one is None else one[index] for one in (self.std, self.interval)))

    @property
    def finite(self) -> np.ndarray:
        """Which molecules have a prediction, bool [M]."""
        return np.isfinite(self.values)


@dataclass(frozen=True)
class Classes:
    """One target's predicted probabilities of M molecules.

    Attributes:
        probabilities: float64 [M, C]; of two classes both columns, 0 and 1.
        names: what the C classes are called, for tables.
    """

    probabilities: np.ndarray
    names: tuple[str, ...] = ()

    def __getitem__(self, index: np.ndarray) -> Classes:
        """Return those of some molecules."""
        return Classes(self.probabilities[index], self.names)

    @property
    def finite(self) -> np.ndarray:
        """Which molecules have a prediction, bool [M]."""
        return np.isfinite(self.probabilities).all(axis=1)


Output = Numbers | Classes


def outputs_of(task: Task, predictions: np.ndarray) -> list[Output]:
    """Return what predictions [M, P] say of each target.

    Args:
        task: whose predictions they are.
        predictions: as of :meth:`molgcn.tasks.base.Task.decode`.
    """
    if isinstance(task, Mixed):
        parts = zip(task.parts, task.prediction_places, strict=True)
        found = {name: one for part, own in parts for name, one in zip(part.names, outputs_of(part, predictions[:, own]), strict=True)}
        return [found[name] for name in task.names]
    if isinstance(task, ClassTask):
        each = [np.column_stack([1 - one, one]) if one.ndim == 1 else one for one in task.by_target(predictions)]
        return [Classes(one, tuple(titles)) for one, titles in zip(each, task.class_titles, strict=True)]
    assert isinstance(task, Regression)
    values, std, interval = task.points(predictions), task.spread(predictions), task.interval(predictions)
    return [
        Numbers(values[:, place], None if std is None else std[:, place], None if interval is None else interval[:, place])
        for place in range(len(task.names))
    ]


def num_classes(output: Output) -> int:
    """Return C, or 0 of a target that is a number."""
    return 0 if isinstance(output, Numbers) else output.probabilities.shape[1]
