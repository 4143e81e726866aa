"""Percentile intervals by the bootstrap (Efron, Ann. Statist. 7, 1979): how far metrics vary between sets of other molecules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from molgcn.metrics.comparison import Interval

PERCENTILES = (2.5, 97.5)
_CELLS = 2**21  # weights held at once


def intervals(values: Callable[[np.ndarray], Mapping[str, np.ndarray]], size: int, resamples: int, seed: int) -> dict[str, Interval]:
    """Compute an interval of every metric over resamples of the molecules.

    Args:
        values: gives metrics [R] by their keys, NaN where undefined, for weights [R, size]: how often each resample has a molecule.
        size: molecules.
        resamples: how many times as many molecules are drawn with replacement; 0 gives no intervals.
        seed: of the draws.

    Returns:
        By key; none of a metric that at least half of the resamples do not define.
    """
    if not size or not resamples:
        return {}
    parts = [values(weights) for weights in _weights(size, resamples, seed)]
    each = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    return {key: _interval(found) for key, found in each.items() if 2 * np.isnan(found).sum() < resamples}


def _weights(size: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Draw weights float64 [some, size] of all resamples, as many at once as memory allows."""
    draws, some = np.random.default_rng(seed), max(_CELLS // size, 1)
    for start in range(0, resamples, some):
        rows = min(some, resamples - start)
        drawn = draws.integers(size, size=(rows, size)) + size * np.arange(rows)[:, None]
        yield np.bincount(drawn.ravel(), minlength=rows * size).reshape(rows, size).astype(np.float64)


def _interval(found: np.ndarray) -> Interval:
    known = found[~np.isnan(found)]
    low, high = np.percentile(known, PERCENTILES)
    return Interval(float(low), float(high), len(found) - len(known))
