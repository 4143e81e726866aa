"""Bootstrap percentile intervals of metrics (Efron, Ann. Statist. 7, 1979).

They estimate how far a metric would vary between test sets of other molecules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from molgcn.metrics.comparison import Interval

PERCENTILES = (2.5, 97.5)
_CELLS = 2**21  # the largest number of weights held at once


def intervals(values: Callable[[np.ndarray], Mapping[str, np.ndarray]], size: int, resamples: int, seed: int) -> dict[str, Interval]:
    """Compute an interval of every metric over resamples of the molecules, each of as many drawn with replacement, by key.

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
