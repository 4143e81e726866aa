"""What a network is to beat: an answer that looks at no molecule, and a random forest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from molgcn.comparison.forest import forest_predictions
from molgcn.comparison.means import with_means
from molgcn.data.packed import PackedMolecules
from molgcn.metrics.comparison import FOREST, MEAN, PRIOR
from molgcn.tasks.base import Task
from molgcn.tasks.classes import ClassTask
from molgcn.tasks.registry import build_task


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
    name = PRIOR if isinstance(task, ClassTask) else MEAN
    return {name: _measured(task, part, np.repeat(task.guess(*statistics), len(targets), axis=0), targets)}


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
    found = forest_predictions(known.smiles or [], known.targets, asked.smiles or [], task.num_classes, seed)
    return {FOREST: _measured(task, part, task.joined(found) if isinstance(task, ClassTask) else found, asked.targets)}


def _plain(task: Task) -> Task:
    """Return the task whose predictions are values or probabilities alone, whatever else a network tells of them."""
    return build_task(task.name, task.names, task.units, task.num_classes)


def _measured(task: Task, part: str, predictions: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    found = with_means(task, task.values(predictions, targets, task.metrics))
    return {f"{part}/{key}": float(values[0]) for key, values in found.items()}
