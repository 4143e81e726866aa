"""Ties among values, the sums of weights over them, and ranks."""

from __future__ import annotations

import numpy as np


class Ties:
    """The sets of equal values among n values, at least one and none of them NaN, in ascending order."""

    def __init__(self, values: np.ndarray) -> None:
        self.order = np.argsort(values)
        ordered = values[self.order]
        self.starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))

    def sums(self, weights: np.ndarray) -> np.ndarray:
        """Return the sums [R, sets] of weights [R, n] over each set, from the smallest value to the largest."""
        return np.add.reduceat(weights[:, self.order], self.starts, axis=1)

    def spread(self, of_sets: np.ndarray) -> np.ndarray:
        """Expand [R, sets], with one number per set, to [R, n], with one number per value."""
        number = np.empty(len(self.order), np.intp)
        number[self.order] = np.repeat(np.arange(len(self.starts)), np.diff(self.starts, append=len(self.order)))
        return of_sets[:, number]


def ranks(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the ranks [R, n] of values [n], none of them NaN, in resamples that contain each as often as weights [R, n] say.

    Equal values share their mean rank.
    """
    ties = Ties(values)
    counts = ties.sums(weights)
    return ties.spread(counts.cumsum(axis=1) - (counts - 1) / 2)
