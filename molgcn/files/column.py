"""A column of a table: numbers or text under a header."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_OF_OPPOSITE, _MOST = 4, 17


@dataclass(frozen=True)
class Column:
    """A column of M rows.

    Attributes:
        name: the header.
        values: float64 [M] with NaN for a missing number, or text [M].
        digits: the significant digits with which numbers are written.
        are_probabilities: whether the numbers are probabilities. As many more digits are written as tell those close to 1 apart, with the
            four of the probability of the opposite.
    """

    name: str
    values: np.ndarray
    digits: int = 7
    are_probabilities: bool = False

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
