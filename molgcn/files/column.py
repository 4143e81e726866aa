"""A column of a table: numbers or text under a header."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

_OF_OPPOSITE, _MOST = 4, 17


@dataclass(frozen=True)
class Column:
    """A column of M rows."""

    name: str  # the header
    values: np.ndarray  # float64 [M] with NaN for a missing number, or text [M]
    digits: int = 7  # the significant digits with which numbers are written
    # whether the numbers are probabilities. As many more digits are written as tell those close to 1 apart, with the four of the
    # probability of the opposite
    are_probabilities: bool = False

    @property
    def entries(self) -> np.ndarray:
        """The entry of each row: `values`, or object [M] with an array for each list."""
        return self.values

    def spread(self, rows: np.ndarray, count: int) -> Column:
        """Return a column of so many rows, with these values at `rows`, which ascend, and missing ones elsewhere."""
        values = np.full(count, np.nan) if self.values.dtype.kind == "f" else np.full(count, "", object)
        values[rows] = self.values
        return replace(self, values=values)

    @property
    def cells(self) -> list[str]:
        """The M values as text."""
        form = f".{self.digits}g" if self.values.dtype.kind == "f" else ""
        if not self.are_probabilities:
            return [format(value, form) for value in self.values.tolist()]
        with np.errstate(divide="ignore"):
            nines = np.nan_to_num(-np.log10(1 - self.values), posinf=0.0).astype(int)  # behind the decimal point
        digits = np.clip(nines + _OF_OPPOSITE, self.digits, _MOST)
        return [format(value, f".{number}g") for value, number in zip(self.values.tolist(), digits.tolist(), strict=True)]


@dataclass(frozen=True)
class Lists(Column):
    """A column of M lists of numbers, such as one for each atom of a molecule.

    Attributes:
        values: float64 [N], the numbers of all lists, NaN for missing ones.
        ends: int64 [M + 1], the first number of each list in `values`, and N.
    """

    ends: np.ndarray = field(default_factory=lambda: np.zeros(1, np.int64))

    @property
    def cells(self) -> list[str]:
        """The M lists as JSON, with null for a missing number."""
        texts = ["null" if text == "nan" else text for text in super().cells]
        return [f"[{', '.join(texts[first:last])}]" for first, last in pairwise(self.ends.tolist())]

    @property
    def entries(self) -> np.ndarray:
        """The lists as arrays, object [M]."""
        found = np.empty(len(self.ends) - 1, object)
        for row, (first, last) in enumerate(pairwise(self.ends.tolist())):
            found[row] = self.values[first:last]
        return found

    def spread(self, rows: np.ndarray, count: int) -> Column:
        """Return a column of so many rows, with these lists at `rows`, which ascend, and empty ones elsewhere."""
        sizes = np.zeros(count, np.int64)
        sizes[rows] = np.diff(self.ends)
        return replace(self, ends=np.concatenate([[0], sizes.cumsum()]))
