"""A column of a table: numbers or text under a header."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Column:
    """One column of M rows.

    Attributes:
        name: its header.
        values: float64 [M], NaN where there is none, or text [M].
        digits: significant digits in which numbers are written.
    """

    name: str
    values: np.ndarray
    digits: int = 7

    @property
    def cells(self) -> list[str]:
        """The values as a table shows them."""
        form = f".{self.digits}g" if self.values.dtype.kind == "f" else ""
        return [format(value, form) for value in self.values.tolist()]
