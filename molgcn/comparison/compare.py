"""The comparison of a model's metrics: intervals, baselines, means over targets and thresholds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from molgcn.comparison.bootstrap import intervals
from molgcn.comparison.means import means_of_parts, with_means
from molgcn.metrics.classes import count_classes
from molgcn.metrics.comparison import Comparison, Threshold
from molgcn.tasks.base import Task


def compare(
    task: Task,
    metrics: Mapping[str, float],
    part: str,
    predictions: np.ndarray,
    targets: np.ndarray,
    resamples: int,
    seed: int,
    baselines: Mapping[str, Mapping[str, float]],
    thresholds: Mapping[str, Threshold],
    molecule: np.ndarray | None = None,
) -> Comparison:
    """Collect what a model's metrics are compared with.

    Args:
        task: what is predicted.
        metrics: the metrics of every part, by "<part>/<metric>/<target>".
        part: the part that gets intervals.
        predictions: [M, P], the predictions for the molecules of that part.
        targets: [M, T], the true values of that part, NaN = missing, or its labels with bounds.
        resamples: the number of bootstrap resamples; 0 for no intervals.
        seed: random seed of the resamples.
        baselines: the metrics of each baseline by its name; see :mod:`molgcn.comparison.baselines`.
        molecule: the molecule of each row of predictions and targets where atoms or bonds have targets, int64 [R]; a resample then has all
            rows of a molecule or none. None where the rows are the molecules.
        thresholds: the threshold of each target with two classes; see :func:`molgcn.comparison.thresholds.chosen_thresholds`.
    """

    def resampled(weights: np.ndarray) -> dict[str, np.ndarray]:
        weights = weights if molecule is None else weights[:, molecule]
        return with_means(task, task.values(predictions, targets, task.all_metrics, weights))

    size = len(targets) if molecule is None else int(molecule.max()) + 1
    found = {f"{part}/{key}": interval for key, interval in intervals(resampled, size, resamples, seed).items()}
    means, counted = means_of_parts(task, metrics)
    return Comparison(means, counted, found, resamples, baselines, thresholds)


def class_counts(task: Task, targets: np.ndarray) -> np.ndarray:
    """Count the labels of each class, int64 [T, C], among targets [M, T]. C is 0 where all targets are numbers."""
    return count_classes(targets, max(part.num_classes for part in task.parts))
