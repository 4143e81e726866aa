"""Split conformal prediction: intervals and sets of classes that contain the true value with a given probability, whatever the model.

A score measures how unusual the true value of a molecule is, given the prediction. It is computed for n molecules that the model was not
fitted on. If new molecules come from the same distribution, a new score is at most the k-th smallest one, k = ceil((n + 1)(1 - alpha)),
with probability k / (n + 1) >= 1 - alpha (Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World, 2005). Over random
calibration sets the coverage is distributed as Beta(k, n + 1 - k).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from molgcn.calibration.outputs import Classes, Numbers, Output

Score = Literal["absolute", "normalised", "quantile", "plain", "adaptive"]
Sets = Literal["plain", "adaptive"]


def rank(count: int, alpha: float) -> int:
    """Return ceil((count + 1)(1 - alpha)), with the exact decimal value of alpha and not its rounded float64."""
    return math.ceil((count + 1) * (1 - Fraction(str(alpha))))


def threshold(scores: np.ndarray, alpha: float) -> float:
    """Return the k-th smallest of scores [n], where k is their :func:`rank`. It is infinite where k exceeds n."""
    place = rank(len(scores), alpha)
    return math.inf if place > len(scores) else float(np.partition(scores, place - 1)[place - 1])


@dataclass(frozen=True)
class Conformal:
    """Intervals or sets of classes with all values whose score is at most a threshold.

    Attributes:
        score: the kind of score.
            "absolute": |true - predicted|.
            "normalised": |true - predicted| / predicted standard deviation (Lei et al., J. Am. Stat. Assoc. 113, 1094, 2018).
            "quantile": the distance of the true value outside the predicted quantiles, negative inside (Romano, Patterson and Candes,
            NeurIPS 2019).
            "plain": 1 - probability of the true class (Sadinle, Lei and Wasserman, J. Am. Stat. Assoc. 114, 223, 2019).
            "adaptive": the total probability of the true class and of all likelier ones (Romano, Sesia and Candes, NeurIPS 2020,
            without their randomisation).
        threshold: the largest score of a value in the interval or set.
    """

    score: Score
    threshold: float

    @classmethod
    def fit(cls, output: Output, true: np.ndarray, alpha: float, sets: Sets) -> Conformal:
        """Fit the threshold to true values or classes [n], so that a share `alpha` of molecules may be missed."""
        score = score_of(output, sets)
        if isinstance(output, Classes):
            every = _class_scores(output.probabilities, score)
            return cls(score, threshold(every[np.arange(len(true)), true.astype(np.int64)], alpha))
        return cls(score, threshold(_number_scores(output, score, true), alpha))

    def bounds(self, output: Numbers) -> np.ndarray:
        """Return the lower and upper ends of the intervals [M, 2]. The upper end is never below the lower one."""
        half = np.full(len(output.values), self.threshold)
        if self.score == "normalised":
            assert output.std is not None
            half *= output.std
        middle = np.stack([output.values] * 2, axis=1) if self.score != "quantile" else output.interval
        assert middle is not None
        ends = middle + np.stack([-half, half], axis=1)
        crossed = ends[:, 0] > ends[:, 1]  # a negative threshold can shrink a narrow interval below zero width
        ends[crossed] = ends[crossed].mean(axis=1, keepdims=True)
        return ends

    def members(self, output: Classes) -> np.ndarray:
        """Return whether each class is in the set of each molecule, bool [M, C]."""
        return _class_scores(output.probabilities, self.score) <= self.threshold


def score_of(output: Output, sets: Sets) -> Score:
    """Return the kind of score for predictions, which uses quantiles or standard deviations where they are predicted."""
    if isinstance(output, Classes):
        return sets
    if output.interval is not None:
        return "quantile"
    return "absolute" if output.std is None else "normalised"


def _number_scores(output: Numbers, score: Score, true: np.ndarray) -> np.ndarray:
    if score == "quantile":
        assert output.interval is not None
        return np.maximum(output.interval[:, 0] - true, true - output.interval[:, 1])
    error = np.abs(true - output.values)
    return error / output.std if score == "normalised" else error


def _class_scores(probabilities: np.ndarray, score: Score) -> np.ndarray:
    """Return the score of each class if it is the true one, [M, C]."""
    if score == "plain":
        return 1 - probabilities
    order = np.argsort(-probabilities, axis=1, kind="stable")
    ordered = np.take_along_axis(probabilities, order, axis=1)
    scores = np.empty_like(probabilities)
    np.put_along_axis(scores, order, np.cumsum(ordered, axis=1), axis=1)
    return scores
