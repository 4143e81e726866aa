"""The comparison of a model's metrics: bootstrap intervals, baselines, means over targets and thresholds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from molgcn.metrics.classes import count_classes
from molgcn.metrics.comparison import Comparison, Interval, Threshold
from molgcn.tasks.base import Task

PERCENTILES = (2.5, 97.5)
_CELLS = 2**21  # the largest number of weights held at once


def intervals(values: Callable[[np.ndarray], Mapping[str, np.ndarray]], size: int, resamples: int, seed: int) -> dict[str, Interval]:
    """Compute a percentile interval (Efron, Ann. Statist. 7, 1979) of every metric over resamples of the molecules, by key.

    Each resample has as many molecules, drawn with replacement. An interval estimates how far a metric would vary between test sets.
    `values` is a function from weights [R, size] to metrics [R] by key, NaN where undefined. A weight says how often a resample contains a
    molecule. A metric that is undefined in at least half of the resamples has no interval.
    """
    if not size or not resamples:
        return {}
    parts = [values(weights) for weights in _weights(size, resamples, seed)]
    each = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    found: dict[str, Interval] = {}
    for key, values_of in each.items():
        known = values_of[~np.isnan(values_of)]
        if 2 * len(known) > resamples:
            low, high = np.percentile(known, PERCENTILES)
            found[key] = Interval(float(low), float(high), resamples - len(known))
    return found


def _weights(size: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Yield the weights of all resamples, float64 [some, size], as many at once as `_CELLS` allows."""
    draws, some = np.random.default_rng(seed), max(_CELLS // size, 1)
    for start in range(0, resamples, some):
        rows = min(some, resamples - start)
        drawn = draws.integers(size, size=(rows, size)) + size * np.arange(rows)[:, None]
        yield np.bincount(drawn.ravel(), minlength=rows * size).reshape(rows, size).astype(np.float64)


def means(task: Task, values: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Compute the mean of every metric over the targets for which it is defined, and the number of these targets.

    Both are [R] by metric, from values [R] by "<metric>/<target>", NaN where undefined. There is no mean for a single target, for errors
    in different units, or for a metric of two tasks.
    """
    each: dict[str, np.ndarray] = {}
    for metric in dict.fromkeys(key.partition("/")[0] for key in values):
        holders = [part for part in task.parts if metric in part.known_metrics]
        if len(holders) != 1 or len(holders[0].names) == 1 or (metric in holders[0].in_units and len(set(holders[0].units)) > 1):
            continue
        each[metric] = np.stack([values[f"{metric}/{name}"] for name in holders[0].names])
    counts = {metric: (~np.isnan(found)).sum(axis=0) for metric, found in each.items()}
    return {metric: np.nansum(each[metric], axis=0) / np.where(count, count, np.nan) for metric, count in counts.items()}, counts


def with_means(task: Task, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the metrics by "<metric>/<target>", together with their means over the targets by "<metric>"."""
    return {**values, **means(task, values)[0]}


def means_of_parts(task: Task, metrics: Mapping[str, float]) -> tuple[dict[str, float], dict[str, int]]:
    """Compute the means and counts of :func:`means` by "<part>/<metric>", from metrics by "<part>/<metric>/<target>"."""
    parts: dict[str, dict[str, np.ndarray]] = {}
    for key, value in metrics.items():
        part, _, name = key.partition("/")
        parts.setdefault(part, {})[name] = np.array([value])
    found = {part: means(task, values) for part, values in parts.items()}
    mean = {f"{part}/{metric}": float(value[0]) for part, (of_part, _) in found.items() for metric, value in of_part.items()}
    return mean, {f"{part}/{metric}": int(count[0]) for part, (_, counts) in found.items() for metric, count in counts.items()}


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
