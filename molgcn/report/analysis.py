"""The errors of one target over a set of molecules, also by size and by scaffold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from molgcn.data.digits import digits_of
from molgcn.metrics import errors_of

MAX_BINS = 8
NO_RING = ""
LEAST = 5  # with fewer molecules, the error of a scaffold says little


@dataclass(frozen=True)
class Group:
    """The errors of molecules that share a size or a scaffold: their mean absolute error, and the mean signed one (predicted - true)."""

    name: str
    count: int
    mae: float
    bias: float


@dataclass(frozen=True)
class Errors:
    """The errors of one target, in its unit."""

    name: str  # the target
    unit: str  # the unit of the target ("" = none)
    index: np.ndarray  # int64 [n], the molecules whose true value is known and whose prediction is finite
    true: np.ndarray  # float64 [n], the true values
    predicted: np.ndarray  # float64 [n], the predictions
    unpredicted: int  # number of molecules left out because the prediction is not finite

    @classmethod
    def of(cls, name: str, unit: str, true: np.ndarray, predicted: np.ndarray) -> Errors:
        """Compare true values [M], NaN where missing, with predictions [M]."""
        known = ~np.isnan(true)
        index = np.flatnonzero(known & np.isfinite(predicted))
        return cls(name, unit, index, true[index].astype(float), predicted[index].astype(float), int(known.sum()) - len(index))

    @property
    def error(self) -> np.ndarray:
        """The signed errors, predicted minus true, float64 [n]."""
        return self.predicted - self.true

    @property
    def mae(self) -> float:
        return _mae(self.predicted, self.true)

    @property
    def digits(self) -> int:
        """The significant digits with which to show single values: four, and more where the true values share their first digits."""
        return digits_of(self.true) - 3

    @property
    def bias(self) -> float:
        return float(self.error.mean()) if len(self.index) else float("nan")

    @property
    def guess(self) -> float:
        """The mean absolute error of predicting the mean of the true values for every molecule."""
        return _mae(np.full_like(self.true, self.true.mean()), self.true) if len(self.index) else float("nan")

    def quantile(self, share: float) -> float:
        """Return the absolute error that this share of the molecules stays below."""
        return float(np.quantile(np.abs(self.error), share)) if len(self.index) else float("nan")

    def worst(self, count: int) -> np.ndarray:
        """Return the positions in `index` of the largest absolute errors, the largest first."""
        return np.argsort(-np.abs(self.error), kind="stable")[:count]

    def group(self, name: str, mask: np.ndarray) -> Group:
        return Group(name, int(mask.sum()), _mae(self.predicted[mask], self.true[mask]), float(self.error[mask].mean()))

    def by_size(self, atoms: np.ndarray) -> list[Group]:
        """Return the errors by number of atoms [M].

        There is one group per size where there are few sizes. Else the groups are ranges of sizes with about as many molecules each. Every
        group has at least two molecules.
        """
        sizes = atoms[self.index]
        edges = size_edges(sizes)
        groups = []
        for low, high in pairwise(edges):
            mask = (sizes >= low) & (sizes < high)
            groups.append(self.group(str(low) if high == low + 1 else f"{low}\u2013{high - 1}", mask))
        return groups

    def by_scaffold(self, scaffolds: Sequence[str]) -> tuple[list[Group], Group | None]:
        """Return the errors by scaffold [M] ("" = no ring), the most common first.

        The molecules whose scaffold is rare are the second value, as one group, or None where there are none.
        """
        if not len(self.index):
            return [], None
        names, inverse, counts = np.unique(np.array(scaffolds, object)[self.index].astype(str), return_inverse=True, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        groups = [self.group(str(names[place]), inverse == place) for place in order if counts[place] >= LEAST]
        rare = counts[inverse] < LEAST
        return groups, self.group("", rare) if rare.any() else None


def _mae(predicted: np.ndarray, true: np.ndarray) -> float:
    return errors_of(predicted[:, None], true[:, None])["mae"][0]


def size_edges(sizes: np.ndarray) -> list[int]:
    """Return the first size of each range, followed by the last size plus one.

    Every range holds at least two of `sizes` [n]. The list is empty where there are fewer than two sizes.
    """
    if len(sizes) < 2:
        return []
    distinct = np.unique(sizes)
    if len(distinct) <= MAX_BINS:
        starts = distinct
    else:
        quantiles = np.quantile(sizes, np.linspace(0, 1, MAX_BINS + 1)[1:-1]).astype(int)
        starts = np.unique([distinct[0], *distinct[np.searchsorted(distinct, quantiles)]])
    edges = [int(starts[0])]
    for end in [*starts[1:].tolist(), int(distinct[-1]) + 1]:
        if ((sizes >= edges[-1]) & (sizes < end)).sum() >= 2:
            edges.append(end)
    edges[-1] = int(distinct[-1]) + 1  # a last range of a single molecule joins the one before
    return edges
