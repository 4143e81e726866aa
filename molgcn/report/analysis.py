"""Where a model errs: numbers of one target over a set of molecules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from molgcn.data.digits import digits_of
from molgcn.metrics import errors_of

MAX_BINS = 8
NO_RING = ""
LEAST = 5  # molecules of a scaffold below which its error says little


@dataclass(frozen=True)
class Group:
    """Molecules that share something: what, how many, mean absolute and mean signed error (predicted - true)."""

    name: str
    count: int
    mae: float
    bias: float


@dataclass(frozen=True)
class Errors:
    """One target's errors, in its unit.

    Attributes:
        name: the target.
        unit: its unit ("" = none).
        index: int64 [n], molecules whose true value is known and whose prediction is finite.
        true: float64 [n].
        predicted: float64 [n].
        unpredicted: molecules left out because the prediction is not finite.
    """

    name: str
    unit: str
    index: np.ndarray
    true: np.ndarray
    predicted: np.ndarray
    unpredicted: int

    @classmethod
    def of(cls, name: str, unit: str, true: np.ndarray, predicted: np.ndarray) -> Errors:
        """From a target's columns [M], NaN where the true value is missing."""
        known = ~np.isnan(true)
        index = np.flatnonzero(known & np.isfinite(predicted))
        return cls(name, unit, index, true[index].astype(float), predicted[index].astype(float), int(known.sum()) - len(index))

    @property
    def error(self) -> np.ndarray:
        """Predicted minus true, [n]."""
        return self.predicted - self.true

    @property
    def mae(self) -> float:
        """Mean absolute error."""
        return _mae(self.predicted, self.true)

    @property
    def digits(self) -> int:
        """Significant digits in which to read single values: four, and more where the values share them."""
        return digits_of(self.true) - 3

    @property
    def bias(self) -> float:
        """Mean signed error."""
        return float(self.error.mean()) if len(self.index) else float("nan")

    @property
    def guess(self) -> float:
        """Mean absolute error of answering the true values' mean for every molecule."""
        return _mae(np.full_like(self.true, self.true.mean()), self.true) if len(self.index) else float("nan")

    def quantile(self, share: float) -> float:
        """The absolute error that this share of molecules stays below."""
        return float(np.quantile(np.abs(self.error), share)) if len(self.index) else float("nan")

    def worst(self, count: int) -> np.ndarray:
        """Places in `index` of the largest absolute errors, largest first."""
        return np.argsort(-np.abs(self.error), kind="stable")[:count]

    def group(self, name: str, mask: np.ndarray) -> Group:
        """The molecules of a mask [n]."""
        return Group(name, int(mask.sum()), _mae(self.predicted[mask], self.true[mask]), float(self.error[mask].mean()))

    def by_size(self, atoms: np.ndarray) -> list[Group]:
        """Errors by number of atoms [M]: one group a size where there are few sizes, else ranges of about as many molecules each.

        A group has at least two molecules: there is none of a single one.
        """
        sizes = atoms[self.index]
        edges = size_edges(sizes)
        groups = []
        for low, high in pairwise(edges):
            mask = (sizes >= low) & (sizes < high)
            groups.append(self.group(str(low) if high == low + 1 else f"{low}\u2013{high - 1}", mask))
        return groups

    def by_scaffold(self, scaffolds: Sequence[str]) -> tuple[list[Group], Group | None]:
        """Errors by scaffold [M], most common first ("" = no ring), and of the molecules whose scaffold is rare, as one group."""
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
    """First size of each range, and one past the last: every range holds at least two of `sizes` [n]; no ranges of fewer than two."""
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
