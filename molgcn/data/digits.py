"""How many digits values need, so that what tells them apart is neither stored nor written away."""

from __future__ import annotations

import numpy as np

FLOAT32_DIGITS = 7
_SHARED = 2  # of the seven digits may be the same in all values; five are left for their differences


def significant_digits(magnitude: float, spread: float) -> int:
    """Return how many significant digits show values of this magnitude to a ten-thousandth of their spread, between 7 and 17.

    Seven suffice up to a hundred times the spread. A spread of 0, of one value or of equal ones, counts as 1.
    """
    shared = np.ceil(np.log10(max(abs(magnitude) / (spread or 1.0), 1.0)))
    return min(FLOAT32_DIGITS + max(int(shared) - _SHARED, 0), 17)


def digits_of(values: np.ndarray) -> int:
    """Return :func:`significant_digits` of values [n], NaN where missing, by the half of them in the middle: outliers do not count."""
    known = values[~np.isnan(values)].astype(np.float64)
    if not len(known):
        return FLOAT32_DIGITS
    low, high = quartiles(known)
    return significant_digits(max(abs(low), abs(high)), high - low or float(np.ptp(known)))


def quartiles(known: np.ndarray) -> tuple[float, float]:
    """Return the first and the third quartile of values [n], none of them missing."""
    low, high = np.quantile(known, (0.25, 0.75))
    return float(low), float(high)


def stored(targets: np.ndarray) -> np.ndarray:
    """Return targets [M, T] in float32, or in float64 where they came with more digits and a column needs more than float32's seven."""
    enough = targets.dtype.itemsize <= 4 or all(digits_of(column) <= FLOAT32_DIGITS for column in targets.T)
    return targets.astype(np.float32 if enough else np.float64)
