"""The comparison of a model's metrics: bootstrap intervals, baselines, means over targets and thresholds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from molgcn.files.json_file import read_json
from molgcn.metrics.classes import THRESHOLD, count_classes
from molgcn.metrics.comparison import Comparison, Interval, Threshold
from molgcn.metrics.ties import Ties
from molgcn.tasks.base import Task
from molgcn.tasks.classes import Classification

PERCENTILES = (2.5, 97.5)
_CELLS = 2**21  # the largest number of weights held at once


def intervals(values: Callable[[np.ndarray], Mapping[str, np.ndarray]], size: int, resamples: int, seed: int) -> dict[str, Interval]:
    """Compute a percentile interval (Efron, Ann. Statist. 7, 1979) of every metric over resamples of the molecules, by key.

    Each resample has as many molecules, drawn with replacement. An interval estimates how far a metric would vary between test sets.
    `values` is a function from weights [R, size] to metrics [R] by key, NaN where undefined. A weight says how often a resample contains a
    molecule. A metric that is undefined in at least half of the resamples has no interval, and a single molecule none at all.
    """
    if size < 2 or not resamples:
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
    """Collect what a model's metrics, by "<part>/<metric>/<target>", are compared with.

    The part that is named gets intervals from so many resamples of its molecules, with predictions [M, P] and targets [M, T], NaN =
    missing, or labels with bounds. Where atoms or bonds have targets, `molecule`, int64 [R], is that of each row, and a resample has all
    rows of a molecule or none. Baselines are by name, and thresholds by target with two classes.
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


def chosen_thresholds(task: Task, predictions: np.ndarray, targets: np.ndarray) -> dict[str, Threshold]:
    """Choose the threshold of every target with two classes, from predictions [M, P] and targets [M, T] of the validation part."""
    found = {
        name: best_threshold(labels, probabilities)
        for part, given, true in task.of_parts(predictions, targets)
        if isinstance(part, Classification)
        for name, labels, probabilities in zip(part.names, true.T, part.by_target(given), strict=True)
    }
    return {name: threshold for name, threshold in found.items() if threshold is not None}


def saved_thresholds(run: Path) -> dict[str, Threshold]:
    """Return the thresholds that a run saved in its `result.json`. There are none where it has no such file."""
    path = run / "result.json"
    return dict(Comparison.of(read_json(path)).thresholds) if path.is_file() else {}


def best_threshold(labels: np.ndarray, probabilities: np.ndarray) -> Threshold | None:
    """Find the threshold with the largest Matthews' correlation coefficient, and among equals the nearest to 0.5.

    It is the mean of two neighbouring probabilities of class 1, [n]. There is none where only one class has labels [n] (NaN = missing),
    or all probabilities are equal.
    """
    known = ~np.isnan(labels) & np.isfinite(probabilities)
    positive, given = labels[known] == 1, probabilities[known].astype(np.float64)
    if positive.all() or not positive.any():
        return None
    ties = Ties(given)
    positives, negatives = (ties.sums(some[None].astype(np.float64))[0] for some in (positive, ~positive))
    levels = given[ties.order[ties.starts]]
    if len(levels) == 1:
        return None
    cuts = (levels[:-1] + levels[1:]) / 2
    fn, tn = positives.cumsum()[:-1], negatives.cumsum()[:-1]
    tp, fp = positives.sum() - fn, negatives.sum() - tn
    scale = np.sqrt(positives.sum()) * np.sqrt(negatives.sum()) * np.sqrt((tp + fp) * (fn + tn))
    mcc = (tp * tn - fp * fn) / scale
    best = np.flatnonzero(mcc >= mcc.max() - 1e-12)
    place = best[np.abs(cuts[best] - THRESHOLD).argmin()]
    return Threshold(float(cuts[place]), float(mcc[place]))
