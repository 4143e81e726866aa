"""The results of a comparison: plain values, as `result.json`, tables and the report take them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

MEAN, PRIOR, FOREST = "training mean", "class prior", "random forest"
BASELINES = {
    MEAN: "the training part's mean as every answer",
    PRIOR: "the training part's shares of the classes as every answer",
    f"{MEAN} and {PRIOR}": "the training part's mean, or its shares of the classes, as every answer",
    f"{PRIOR} and {MEAN}": "the training part's shares of the classes, or its mean, as every answer",
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

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, None for NaN, as JSON takes them."""
        return {
            **asdict(self),
            "means": without_nan(self.means),
            "baselines": {name: without_nan(metrics) for name, metrics in self.baselines.items()},
        }

    @property
    def undefined(self) -> int:
        """The most resamples that one of the intervals leaves out."""
        return max((interval.undefined for interval in self.intervals.values()), default=0)


def without_nan(metrics: Mapping[str, float]) -> dict[str, float | None]:
    """Return the metrics with None for NaN, which JSON does not have."""
    return {name: None if math.isnan(value) else value for name, value in metrics.items()}
