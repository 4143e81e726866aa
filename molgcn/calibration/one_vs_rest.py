"""One-vs-rest calibration, by which methods for two classes calibrate more (Zadrozny and Elkan, KDD 2002)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np


def each_class(probabilities: np.ndarray, labels: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield, for each class that is calibrated, its probabilities [n] and whether each molecule belongs to it, bool [n].

    Of two classes only class 1 is calibrated. Class 0 gets the rest.
    """
    for one in _calibrated(probabilities):
        yield probabilities[:, one], labels == one


def apply_each(probabilities: np.ndarray, curves: Sequence[Callable[[np.ndarray], np.ndarray]]) -> np.ndarray:
    """Return calibrated probabilities [M, C], normalised so that every row sums to 1.

    A row in which every curve gives 0 gets equal probabilities.

    Args:
        probabilities: [M, C], the predicted probabilities.
        curves: for each class that :func:`each_class` yields, the function from probabilities [M] to calibrated ones [M].
    """
    found = np.stack([curve(probabilities[:, one]) for one, curve in zip(_calibrated(probabilities), curves, strict=True)], axis=1)
    if found.shape[1] == 1:
        return np.concatenate([1 - found, found], axis=1)
    total = found.sum(axis=1, keepdims=True)
    return np.divide(found, total, out=np.full_like(found, 1 / found.shape[1]), where=total > 0)


def _calibrated(probabilities: np.ndarray) -> range:
    count = probabilities.shape[1]
    return range(1, 2) if count == 2 else range(count)
