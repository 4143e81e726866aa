"""Split conformal prediction: intervals and sets of classes that hold the true value as often as promised, whatever the model.

Of n molecules that the model was not fitted on a score says how strange the true value is. If those to come are drawn alike, a new
score is at most the k-th smallest, k = ceil((n + 1)(1 - alpha)), with probability k / (n + 1), which is 1 - alpha or a little more
(Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World, 2005). Over calibration sets the coverage has the law
Beta(k, n + 1 - k).
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
    """Return ceil((count + 1)(1 - alpha)), with alpha as it is written in decimals and not as it is rounded to float64."""
    return math.ceil((count + 1) * (1 - Fraction(str(alpha))))


def threshold(scores: np.ndarray, alpha: float) -> float:
    """Return the :func:`rank`-th smallest of scores [n], infinite where that exceeds n."""
    place = rank(len(scores), alpha)
    return math.inf if place > len(scores) else float(np.partition(scores, place - 1)[place - 1])


@dataclass(frozen=True)
class Conformal:
    """Take what is no stranger than a threshold.

    Attributes:
        score: absolute: |true - predicted|. normalised: the same divided by the predicted standard deviation (Lei et al., J. Am. Stat.
            Assoc. 113, 1094, 2018). quantile: how far the value lies outside the predicted quantiles, negative within (Romano,
            Patterson and Candes, NeurIPS 2019). plain: 1 - the true class's probability (Sadinle, Lei and Wasserman, J. Am. Stat. Assoc.
            114, 223, 2019). adaptive: the probability of all classes that are as likely as the true one, or likelier (Romano, Sesia and
            Candes, NeurIPS 2020, without their random numbers).
        threshold: the largest score that is taken.
    """

    score: Score
    threshold: float

    @classmethod
    def fit(cls, output: Output, true: np.ndarray, alpha: float, sets: Sets) -> Conformal:
        """Return the threshold for true values or labels [n].

        Args:
            output: predictions of n molecules.
            true: values, or classes as whole numbers.
            alpha: the share of molecules that may be missed.
            sets: the score of classes.
        """
        score = score_of(output, sets)
        if isinstance(output, Classes):
            every = _class_scores(output.probabilities, score)
            return cls(score, threshold(every[np.arange(len(true)), true.astype(np.int64)], alpha))
        return cls(score, threshold(_number_scores(output, score, true), alpha))

    def bounds(self, output: Numbers) -> np.ndarray:
        """Return the intervals' lower and upper ends [M, 2]; the upper one is never below the lower one."""
        half = np.full(len(output.values), self.threshold)
        if self.score == "normalised":
            assert output.std is not None
            half *= output.std
        middle = np.stack([output.values] * 2, axis=1) if self.score != "quantile" else output.interval
        assert middle is not None
        ends = middle + np.stack([-half, half], axis=1)
        crossed = ends[:, 0] > ends[:, 1]  # a negative threshold takes more from narrow quantiles than there is
        ends[crossed] = ends[crossed].mean(axis=1, keepdims=True)
        return ends

    def members(self, output: Classes) -> np.ndarray:
        """Return which classes are in the set of each molecule, bool [M, C]."""
        return _class_scores(output.probabilities, self.score) <= self.threshold


def score_of(output: Output, sets: Sets) -> Score:
    """Return the score that suits the predictions: with quantiles or standard deviations where there are some."""
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
    """Return the score that each class [M, C] has if it is the true one."""
    if score == "plain":
        return 1 - probabilities
    order = np.argsort(-probabilities, axis=1, kind="stable")
    ordered = np.take_along_axis(probabilities, order, axis=1)
    scores = np.empty_like(probabilities)
    np.put_along_axis(scores, order, np.cumsum(ordered, axis=1), axis=1)
    return scores
