"""The results of a comparison as plain values, which `result.json`, tables and the report show."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

MEAN, PRIOR, FOREST = "training mean", "class prior", "random forest"
NETWORK, TREES = "the network", "the trees"  # of a blend
BASELINES = {
    MEAN: "the mean of the training part as every prediction",
    PRIOR: "the shares of the classes in the training part as every prediction",
    FOREST: "a random forest of 100 trees (scikit-learn) on counts of Morgan fingerprints (radius 2, 2,048 bits) of the training molecules",
    NETWORK: "the network alone, without the trees that predict together with it",
    TREES: "the boosted trees (LightGBM) alone, without the network that predicts together with them",
}


@dataclass(frozen=True)
class Interval:
    """A 95 % interval of a metric: the percentiles 2.5 and 97.5 of its values over bootstrap resamples of the molecules."""

    low: float  # the lower end
    high: float  # the upper end
    undefined: int  # number of resamples that were left out because the metric is undefined, for example without a molecule of class 1


@dataclass(frozen=True)
class Threshold:
    """The probability above which class 1 is predicted, chosen on the validation part."""

    value: float  # the threshold with the largest Matthews' correlation coefficient on that part
    mcc: float  # the coefficient at the threshold


@dataclass(frozen=True)
class Comparison:
    """The values that a model's metrics are compared with."""

    # by "<part>/<metric>", the mean over the targets for which the metric is defined. Empty for a single target
    means: Mapping[str, float] = field(default_factory=dict)
    counted: Mapping[str, int] = field(default_factory=dict)  # by "<part>/<metric>", the number of targets in the mean
    # the intervals of one part, by "<part>/<metric>/<target>" for targets and "<part>/<metric>" for means. A metric has none where it is
    # undefined in at least half of the resamples
    intervals: Mapping[str, Interval] = field(default_factory=dict)
    resamples: int = 0  # the number of bootstrap resamples
    # by name of the baseline, its metrics and their means on the same part, by the same keys
    baselines: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    # by target with two classes, the chosen threshold. A target has none where validation has one class only
    thresholds: Mapping[str, Threshold] = field(default_factory=dict)

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> Comparison:
        """Read the fields from values that :func:`without_nan` returned. Missing fields are empty, and further values are ignored."""
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
        """The largest number of resamples that an interval leaves out."""
        return max((interval.undefined for interval in self.intervals.values()), default=0)


def without_nan(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values and nested mappings with None in place of NaN and infinity, which JSON does not have."""
    return {name: _finite(value) for name, value in values.items()}


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return without_nan(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def with_nan(metrics: Mapping[str, float | None]) -> dict[str, float]:
    return {name: math.nan if value is None else float(value) for name, value in metrics.items()}
