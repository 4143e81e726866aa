"""The predictions of each target in the form that calibration takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from molgcn.tasks.base import Task
from molgcn.tasks.classes import ClassTask
from molgcn.tasks.mixed import Mixed
from molgcn.tasks.regression import Regression


@dataclass(frozen=True)
class Numbers:
    """The predictions of a target whose values are numbers, for M molecules."""

    values: np.ndarray  # float64 [M], the predicted values
    std: np.ndarray | None = None  # float64 [M], the predicted standard deviations, or None
    interval: np.ndarray | None = None  # float64 [M, 2], a predicted lower and upper quantile, or None

    def __getitem__(self, index: np.ndarray) -> Numbers:
        return Numbers(self.values[index], *(None if one is None else one[index] for one in (self.std, self.interval)))

    @property
    def finite(self) -> np.ndarray:
        """Whether each molecule has a prediction, bool [M]."""
        return np.isfinite(self.values)


@dataclass(frozen=True)
class Classes:
    """The predictions of a target whose values are classes: the probability of every class float64 [M, C], and the classes' names."""

    probabilities: np.ndarray
    names: tuple[str, ...] = ()

    def __getitem__(self, index: np.ndarray) -> Classes:
        return Classes(self.probabilities[index], self.names)

    @property
    def finite(self) -> np.ndarray:
        return np.isfinite(self.probabilities).all(axis=1)


Output = Numbers | Classes


def outputs_of(task: Task, predictions: np.ndarray) -> list[Output]:
    """Split predictions [M, P], from :meth:`molgcn.tasks.base.Task.decode`, by target."""
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
