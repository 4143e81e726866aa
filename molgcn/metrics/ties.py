"""Equal values among many, in ascending order, and what weights of the values add up to in each set of them."""

from __future__ import annotations

import numpy as np


class Ties:
    """Sets of equal values.

    Args:
        values: [n], at least one, none of them NaN.
    """

    def __init__(self, values: np.ndarray) -> None:
        self.order = np.argsort(values)
        ordered = values[self.order]
        self.starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))

    def sums(self, weights: np.ndarray) -> np.ndarray:
        """Return the sums [R, sets] of weights [R, n], from the smallest value to the largest."""
        return np.add.reduceat(weights[:, self.order], self.starts, axis=1)

    def spread(self, of_sets: np.ndarray) -> np.ndarray:
        """Return for each of the n values what [R, sets] says of its set."""
        number = np.empty(len(self.order), np.intp)
        number[self.order] = np.repeat(np.arange(len(self.starts)), np.diff(self.starts, append=len(self.order)))
        return of_sets[:, number]


def ranks(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the ranks [R, n] of values [n] that occur as often as whole weights [R, n] say; equal ones share their mean rank."""
    ties = Ties(values)
    counts = ties.sums(weights)
    return ties.spread(counts.cumsum(axis=1) - (counts - 1) / 2)
