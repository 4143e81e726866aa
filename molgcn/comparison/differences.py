"""Differences between models that were tested on the same molecules: paired, with intervals over molecules and over folds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from molgcn.comparison.compare import intervals
from molgcn.metrics.comparison import Interval

_LEVEL = 0.95
Values = Callable[[np.ndarray | None], Mapping[str, np.ndarray]]


@dataclass(frozen=True)
class Difference:
    """The difference between two models in a metric of a target, the second minus the first."""

    first: int  # the place of the first model
    second: int  # the place of the second model
    key: str  # "<metric>/<target>"
    value: float  # the difference of the metric over all test molecules
    # its 95 % interval over resamples of the molecules, the same for both models; None where the metric is often undefined
    molecules: Interval | None
    mean: float = np.nan  # the mean difference over the folds; NaN with fewer than two folds that define the metric
    folds: Interval | None = None  # its 95 % interval by Tukey's HSD, which holds for all pairs of models at once; None without `mean`
    # the probability of a difference at least as large between models that are equal, by the same test; NaN without `mean`
    p: float = np.nan

    def better(self, rising: bool) -> int | None:
        """Return the place of the better model, by the interval over folds, else that over molecules; None where it holds 0."""
        interval = self.folds or self.molecules
        if interval is None or interval.low <= 0 <= interval.high:
            return None
        return self.second if (interval.low > 0) == rising else self.first


def differences(
    values: Sequence[Values], scores: Mapping[str, np.ndarray], size: int, resamples: int = 0, seed: int = 0
) -> list[Difference]:
    """Compare every pair of N models, key by key.

    Args:
        values: for each model, a function from weights [R, size] of the molecules to metrics [R] by "<metric>/<target>", NaN where
            undefined; see :func:`molgcn.comparison.compare.intervals`. None weighs all molecules the same, as one resample.
        scores: by "<metric>/<target>", the metric in each of F folds, [F, N], NaN where undefined. F is 0 without folds.
        size: the number of test molecules.
        resamples: the number of resamples of the molecules; 0 for no intervals over molecules.
        seed: the seed of the resamples.
    """
    pairs = list(combinations(range(len(values)), 2))

    def of_pairs(weights: np.ndarray | None) -> dict[str, np.ndarray]:
        found = [one(weights) for one in values]
        return {f"{first} {second} {key}": found[second][key] - found[first][key] for first, second in pairs for key in scores}

    measured, over_molecules = of_pairs(None), intervals(of_pairs, size, resamples, seed)
    results = []
    for key, folds in scores.items():
        known = folds[~np.isnan(folds).any(axis=1)]
        tests = tukey_hsd(known) if len(known) > 1 else {}
        for first, second in pairs:
            name = f"{first} {second} {key}"
            mean, low, high, p = tests.get((first, second), (np.nan,) * 4)
            interval = Interval(low, high, len(folds) - len(known)) if tests else None
            results.append(Difference(first, second, key, float(measured[name][0]), over_molecules.get(name), mean, interval, p))
    return results


def tukey_hsd(scores: np.ndarray) -> dict[tuple[int, int], tuple[float, float, float, float]]:
    r"""Compare all pairs of N models by Tukey's honestly significant difference, with folds as blocks.

    Models are compared within each fold, so that folds which are harder for all models do not hide a difference. With the residuals
    :math:`r_{fn} = s_{fn} - \bar s_f - \bar s_n + \bar s`, the interval of a difference is

    .. math::
        d \pm q_{0.95}(N, \nu) \sqrt{\textstyle\sum r_{fn}^2 / (\nu F)}, \qquad \nu = (F - 1)(N - 1)

    where q is a quantile of the studentized range. For two models this is the paired t-test. Folds share training molecules, so that
    intervals are somewhat too narrow.

    Source: Tukey, "The Problem of Multiple Comparisons", 1953; for models of molecules Ash et al., J. Chem. Inf. Model., 2025.

    Args:
        scores: [F, N], the scores of N models in F folds, at least two of each.

    Returns:
        For each pair of models: the mean difference (second minus first), the ends of its 95 % interval, and p.
    """
    from scipy.stats import studentized_range

    folds, models = scores.shape
    freedom = (folds - 1) * (models - 1)
    means = scores.mean(axis=0)
    residuals = scores - scores.mean(axis=1, keepdims=True) - means + scores.mean()
    error = float(np.sqrt(np.square(residuals).sum() / (freedom * folds)))
    reach = float(studentized_range.ppf(_LEVEL, models, freedom)) * error
    found = {}
    for first, second in combinations(range(models), 2):
        mean = float(means[second] - means[first])
        p = float(studentized_range.sf(abs(mean) / error, models, freedom)) if error else float(mean == 0)
        found[first, second] = (mean, mean - reach, mean + reach, p)
    return found
