"""Find how much of a network and how much of trees a prediction takes, on molecules that neither was fitted to."""

from __future__ import annotations

import numpy as np

EQUAL = 100  # labels of the validation part with which the share is half what they say and half what is expected
# The network's share that is expected, by scaffold cross-validation on 15 of TDC's ADMET sets. Labels of the validation part favour the
# network, whose epoch was chosen by them.
OF_NUMBERS, OF_CLASSES = 0.5, 0.25
_GRID = np.linspace(0, 1, 101)


def share_of_numbers(network: np.ndarray, trees: np.ndarray, labels: np.ndarray) -> float:
    """Return the network's share of the prediction of a target that is a number, from 0 to 1.

    It has the least mean absolute error on the labels, moved towards 1 / 2 where there are few.

    Args:
        network: [M], the network's predictions, standardised.
        trees: [M], the trees' predictions.
        labels: [M], the labels, NaN where missing.
    """
    known = ~np.isnan(labels)
    shares = _GRID[:, None]
    errors = np.abs(shares * network[known] + (1 - shares) * trees[known] - labels[known])
    return _shrunk(errors, int(known.sum()), OF_NUMBERS)


def share_of_classes(network: np.ndarray, trees: np.ndarray, labels: np.ndarray) -> float:
    """Return the network's share of the probabilities of a target that is a class, from 0 to 1; see :func:`share_of_numbers`.

    It has the least mean logarithmic loss on the labels, moved towards 1 / 4 where a class has few. Probabilities are [M, C].
    """
    known = np.flatnonzero(~np.isnan(labels))
    true = labels[known].astype(np.int64)
    mixes = (mix_of_classes(network[known], trees[known], share) for share in _GRID)
    losses = np.stack([-np.log(mix[np.arange(len(known)), true].clip(1e-7)) for mix in mixes])
    classes, counts = np.unique(true, return_counts=True)
    return _shrunk(losses, int(counts.min()) * len(classes) if len(classes) > 1 else 0, OF_CLASSES)


def mix_of_classes(network: np.ndarray, trees: np.ndarray, share: np.ndarray | float) -> np.ndarray:
    """Return probabilities that are proportional to `network**share * trees**(1 - share)`.

    A mean of logarithms keeps the order of molecules of which trees are almost certain.

    Args:
        network: [..., C], the network's probabilities.
        trees: [..., C], the trees' probabilities.
        share: the network's share, broadcast with the leading dimensions.
    """
    share = np.asarray(share)[..., None]
    logarithms = share * np.log(network.clip(1e-9)) + (1 - share) * np.log(trees.clip(1e-9))
    return np.exp(logarithms - np.logaddexp.reduce(logarithms, axis=-1, keepdims=True))


def _shrunk(losses: np.ndarray, labels: int, expected: float) -> float:
    """Return the share with the least mean of losses [101, M], and the expected one counted as `EQUAL` labels beside so many."""
    best = _GRID[losses.mean(axis=1).argmin()] if labels else expected
    return float((labels * best + EQUAL * expected) / (labels + EQUAL))
