"""Finds how many digits values need, so that storing or writing them does not lose what tells them apart."""

from __future__ import annotations

import numpy as np

FLOAT32_DIGITS = 7
_SHARED = 2  # leading digits that may be the same in all values, so that five of the seven show their differences


def significant_digits(magnitude: float, spread: float) -> int:
    """Return how many significant digits show values of this magnitude to a ten-thousandth of their spread, between 7 and 17.

    Seven suffice for a magnitude of up to a hundred times the spread. A spread of 0 counts as 1.
    """
    shared = np.ceil(np.log10(max(abs(magnitude) / (spread or 1.0), 1.0)))
    return min(FLOAT32_DIGITS + max(int(shared) - _SHARED, 0), 17)


def digits_of(values: np.ndarray) -> int:
    """Return :func:`significant_digits` of values [n], NaN where missing, with the quartiles for magnitude and spread.

    The quartiles keep outliers from counting.
    """
    known = values[~np.isnan(values)].astype(np.float64)
    if not len(known):
        return FLOAT32_DIGITS
    low, high = quartiles(known)
    return significant_digits(max(abs(low), abs(high)), high - low or float(np.ptp(known)))


def quartiles(known: np.ndarray) -> tuple[float, float]:
    """Return the first and the third quartile of values [n] without NaN."""
    low, high = np.quantile(known, (0.25, 0.75))
    return float(low), float(high)


def stored(targets: np.ndarray) -> np.ndarray:
    """Return targets [M, T] in float32, or in float64 where they are float64 and a column needs more than the seven digits of float32."""
    enough = targets.dtype.itemsize <= 4 or all(digits_of(column) <= FLOAT32_DIGITS for column in targets.T)
    return targets.astype(np.float32 if enough else np.float64)
