"""The baselines that a network should beat: a constant prediction, and a random forest."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from torch import Tensor

from molgcn.comparison.compare import with_means
from molgcn.comparison.forest import forest_predictions
from molgcn.data.label_columns import measured, metric_labels
from molgcn.data.packed import PackedMolecules
from molgcn.metrics.comparison import FOREST, MEAN, PRIOR
from molgcn.tasks.base import Task
from molgcn.tasks.classes import ClassTask
from molgcn.tasks.regression import Regression


def baselines_of(
    wanted: str, task: Task, statistics: Sequence[Tensor], part: str, asked: PackedMolecules, known: PackedMolecules | None, seed: int
) -> dict[str, dict[str, float]]:
    """Measure the baselines that `training.baseline` names ("none", "simple" or "rf") on the molecules of a part.

    The simple ones need the task's statistics of the training part, the forest its molecules, `known`.

    Returns:
        By name of the baseline, its metrics by "<part>/<metric>/<target>" and their means by "<part>/<metric>".
    """
    found: dict[str, dict[str, float]] = {}
    if wanted != "none":
        found |= simple_baseline(task, statistics, part, metric_labels(asked))
    if wanted == "rf" and known is not None:
        found |= forest_baseline(task, part, measured(known), asked, seed)
    return found


def simple_baseline(task: Task, statistics: Sequence[Tensor], part: str, targets: np.ndarray) -> dict[str, dict[str, float]]:
    """Measure the prediction of the training part's mean, or of its shares of the classes, for all targets [M, T] of a part, or labels."""
    task = plain(task)
    measured = measured_as(task, part, np.repeat(task.guess(*statistics), len(targets), axis=0), targets)
    found: dict[str, dict[str, float]] = {}
    for one in task.parts:
        own = {key: value for key, value in measured.items() if key.split("/")[1] in one.known_metrics}
        found.setdefault(PRIOR if one.num_classes else MEAN, {}).update(own)
    return found


def forest_baseline(task: Task, part: str, known: PackedMolecules, asked: PackedMolecules, seed: int) -> dict[str, dict[str, float]]:
    """Measure a random forest that is fitted to the training molecules `known`, on the molecules of a part; both have SMILES."""
    task = plain(task)
    columns = []
    for one, _, targets in task.of_parts(np.empty((0, task.num_predictions)), known.targets):
        found = forest_predictions(known.smiles or [], targets, asked.smiles or [], one.num_classes, seed)
        columns.append(one.joined(found) if isinstance(one, ClassTask) else found)
    return {FOREST: measured_as(task, part, task.together(columns), metric_labels(asked))}


def plain(task: Task) -> Task:
    """Return the task with values and probabilities as its only predictions, without uncertainties."""

    def without(part: Task) -> Task:
        if not isinstance(part, Regression):
            return part
        chosen = tuple(metric for metric in part.chosen if metric in part.extra)
        return Regression(part.names, part.units, chosen=chosen, transforms=part.transforms)

    return task.with_parts(without)


def measured_as(task: Task, part: str, predictions: np.ndarray, targets: np.ndarray, wanted: Collection[str] = ()) -> dict[str, float]:
    """Return wanted metrics of predictions [M, P], or all, by "<part>/<metric>/<target>", and their means by "<part>/<metric>"."""
    found = with_means(task, task.values(predictions, targets, wanted or task.all_metrics))
    return {f"{part}/{key}": float(values[0]) for key, values in found.items()}
