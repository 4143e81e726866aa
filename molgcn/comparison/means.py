"""Means of metrics over the targets."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from molgcn.tasks.base import Task


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
