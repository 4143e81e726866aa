"""A column of a table: numbers or text under a header."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Column:
    """A column of M rows.

    Attributes:
        name: the header.
        values: float64 [M] with NaN for a missing number, or text [M].
        digits: the significant digits with which numbers are written.
    """

    name: str
    values: np.ndarray
    digits: int = 7

    @property
    def cells(self) -> list[str]:
        """The M values as text."""
        form = f".{self.digits}g" if self.values.dtype.kind == "f" else ""
        return [format(value, form) for value in self.values.tolist()]
