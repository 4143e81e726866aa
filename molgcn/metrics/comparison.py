"""The results of a comparison: plain values, as `result.json`, tables and the report take them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

MEAN, PRIOR, FOREST = "training mean", "class prior", "random forest"
BASELINES = {
    MEAN: "the training part's mean as every answer",
    PRIOR: "the training part's shares of the classes as every answer",
    FOREST: "a random forest of 100 trees (scikit-learn) on counts of Morgan fingerprints (radius 2, 2,048 bits) of the training molecules",
}


@dataclass(frozen=True)
class Interval:
    """A 95 % interval of a metric: percentiles 2.5 and 97.5 of its values in resamples of the molecules.

    Attributes:
        low: the lower end.
        high: the upper end.
        undefined: resamples that do not define the metric and were left out, for example without a molecule of class 1.
    """

    low: float
    high: float
    undefined: int


@dataclass(frozen=True)
class Threshold:
    """The probability of class 1 above which a molecule counts for it, chosen on the validation part.

    Attributes:
        value: the threshold with the largest Matthews' correlation coefficient there.
        mcc: that coefficient.
    """

    value: float
    mcc: float


@dataclass(frozen=True)
class Comparison:
    """What a model's metrics are read beside.

    Attributes:
        means: by "<part>/<metric>", the mean over the targets that define it; of several targets only.
        counted: by "<part>/<metric>", how many targets that is the mean of.
        intervals: by "<part>/<metric>/<target>" and "<part>/<metric>", of one part; none where at least half of the resamples do not
            define the metric.
        resamples: how many resamples the intervals are from.
        baselines: by a baseline's name, its metrics and their means under the same keys, of the same part.
        thresholds: by target with two classes, the threshold of its decisions; none where validation has one class only.
    """

    means: Mapping[str, float] = field(default_factory=dict)
    counted: Mapping[str, int] = field(default_factory=dict)
    intervals: Mapping[str, Interval] = field(default_factory=dict)
    resamples: int = 0
    baselines: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    thresholds: Mapping[str, Threshold] = field(default_factory=dict)

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> Comparison:
        """Take the fields that :func:`without_nan` has written among others; those that are not there are empty."""
        found = {one.name: saved[one.name] for one in fields(cls) if one.name in saved}
        comparison = cls(**found)
        return replace(
            comparison,
            means=with_nan(comparison.means),
            intervals={key: Interval(**values) for key, values in found.get("intervals", {}).items()},
            baselines={name: with_nan(metrics) for name, metrics in comparison.baselines.items()},
            thresholds={name: Threshold(**values) for name, values in found.get("thresholds", {}).items()},
        )

    @property
    def undefined(self) -> int:
        """The most resamples that one of the intervals leaves out."""
        return max((interval.undefined for interval in self.intervals.values()), default=0)


def without_nan(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values, also those of mappings among them, with None for NaN and infinity, which JSON does not have."""
    return {name: _finite(value) for name, value in values.items()}


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return without_nan(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def with_nan(metrics: Mapping[str, float | None]) -> dict[str, float]:
    """Return metrics with NaN for None."""
    return {name: math.nan if value is None else float(value) for name, value in metrics.items()}
