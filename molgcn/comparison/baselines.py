"""What a network is to beat: an answer that looks at no molecule, and a random forest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor

from molgcn.comparison.forest import forest_predictions
from molgcn.comparison.means import with_means
from molgcn.data.label_columns import measured
from molgcn.data.packed import PackedMolecules
from molgcn.metrics.comparison import FOREST, MEAN, PRIOR
from molgcn.tasks.base import Task
from molgcn.tasks.classes import ClassTask
from molgcn.tasks.mixed import Mixed
from molgcn.tasks.regression import Regression


def baselines_of(
    wanted: str, task: Task, statistics: Sequence[Tensor], part: str, asked: PackedMolecules, known: PackedMolecules | None, seed: int
) -> dict[str, dict[str, float]]:
    """Measure the baselines that `training.baseline` names; see :func:`simple_baseline`.

    Args:
        wanted: none, simple or rf.
        task: what is predicted.
        statistics: the task's, of the training part.
        part: which part the molecules that are asked are of.
        asked: molecules with exact targets.
        known: the training part, which only the forest needs.
        seed: of the forest.
    """
    found: dict[str, dict[str, float]] = {}
    if wanted != "none":
        found |= simple_baseline(task, statistics, part, asked.targets)
    if wanted == "rf" and known is not None:
        found |= forest_baseline(task, part, measured(known), asked, seed)
    return found


def simple_baseline(task: Task, statistics: Sequence[Tensor], part: str, targets: np.ndarray) -> dict[str, dict[str, float]]:
    """Measure the training part's mean, or its shares of classes, as the answer for every molecule.

    Args:
        task: what is predicted.
        statistics: the task's, of the training part.
        part: which part the targets are of.
        targets: [M, T], NaN = missing.

    Returns:
        By the baseline's name, metrics by "<part>/<metric>/<target>" and their means by "<part>/<metric>".
    """
    task = _plain(task)
    measured = _measured(task, part, np.repeat(task.guess(*statistics), len(targets), axis=0), targets)
    found: dict[str, dict[str, float]] = {}
    for one in task.parts:
        own = {key: value for key, value in measured.items() if key.split("/")[1] in one.metrics}
        found.setdefault(PRIOR if one.num_classes else MEAN, {}).update(own)
    return found


def forest_baseline(task: Task, part: str, known: PackedMolecules, asked: PackedMolecules, seed: int) -> dict[str, dict[str, float]]:
    """Measure a random forest that is fitted to the training molecules; see :func:`simple_baseline`.

    Args:
        task: what is predicted.
        part: which part the molecules that are asked are of.
        known: the training part, with SMILES.
        asked: molecules with SMILES.
        seed: of the forest.
    """
    task = _plain(task)
    columns = [
        _forest_columns(one, known.smiles or [], targets, asked.smiles or [], seed)
        for one, _, targets in task.of_parts(np.empty((0, task.num_predictions)), known.targets)
    ]
    return {FOREST: _measured(task, part, task.together(columns), asked.targets)}


def _forest_columns(task: Task, smiles: Sequence[str], targets: np.ndarray, asked: Sequence[str], seed: int) -> np.ndarray:
    """Return predictions [K, P] of a task whose targets are measured alike."""
    found = forest_predictions(smiles, targets, asked, task.num_classes, seed)
    return task.joined(found) if isinstance(task, ClassTask) else found


def _plain(task: Task) -> Task:
    """Return the task whose predictions are values or probabilities alone, whatever else a network tells of them."""
    if isinstance(task, Mixed):
        return replace(task, members=tuple(_plain(part) for part in task.parts))
    return Regression(task.names, task.units, transforms=task.transforms) if isinstance(task, Regression) else task


def _measured(task: Task, part: str, predictions: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    found = with_means(task, task.values(predictions, targets, task.all_metrics))
    return {f"{part}/{key}": float(values[0]) for key, values in found.items()}
