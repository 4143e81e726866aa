"""The input of a report section: the true and predicted values of one target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from molgcn.metrics.classes import THRESHOLD
from molgcn.metrics.comparison import Threshold
from molgcn.report.analysis import Errors
from molgcn.report.subject import Draw, Subject


@dataclass(frozen=True)
class NumberView:
    """A target whose values are numbers.

    Attributes:
        subject: what the page is about.
        errors: the errors of the n molecules whose true value is known and whose prediction is finite.
        scaffolds: the scaffolds of the M molecules, or None.
        draw: returns the drawing of a SMILES as a `data:` URL.
    """

    subject: Subject
    errors: Errors
    scaffolds: Sequence[str] | None
    draw: Draw

    @property
    def missing(self) -> int:
        """The number of molecules without a true value."""
        return len(self.subject.molecules) - len(self.errors.index) - self.errors.unpredicted


@dataclass(frozen=True)
class ClassView:
    """A target whose values are classes.

    Attributes:
        subject: what the page is about.
        place: the index of the target.
        index: int64 [n], the molecules whose class is known and whose probabilities are finite.
        true: int64 [n], the true classes of these molecules.
        given: float64, the predicted probabilities of class 1 [n], or of all classes [n, C].
        titles: the names of the C classes.
        unpredicted: number of molecules left out because a probability is not finite.
        draw: returns the drawing of a SMILES as a `data:` URL.
    """

    subject: Subject
    place: int
    index: np.ndarray
    true: np.ndarray
    given: np.ndarray
    titles: Sequence[str]
    unpredicted: int
    draw: Draw

    @classmethod
    def of(cls, subject: Subject, place: int, probabilities: np.ndarray, titles: Sequence[str], draw: Draw) -> ClassView:
        """Make the view of a target.

        Args:
            subject: what the page is about.
            place: the index of the target.
            probabilities: the predicted probabilities of class 1 [M], or of all classes [M, C].
            titles: the names of the C classes.
            draw: returns the drawing of a SMILES as a `data:` URL.
        """
        labels = subject.molecules.targets[:, place]
        known, finite = ~np.isnan(labels), np.isfinite(probabilities.reshape(len(labels), -1)).all(axis=1)
        index = np.flatnonzero(known & finite)
        given = probabilities[index].astype(np.float64)
        return cls(subject, place, index, labels[index].astype(np.int64), given, titles, int((known & ~finite).sum()), draw)

    @property
    def name(self) -> str:
        """The name of the target."""
        return self.subject.names[self.place]

    @property
    def binary(self) -> bool:
        """Whether there are two classes, which one probability describes."""
        return self.given.ndim == 1

    @property
    def chosen(self) -> Threshold | None:
        """The threshold that was chosen on the validation part, or None."""
        return self.subject.comparison.thresholds.get(self.name)

    @property
    def threshold(self) -> float:
        """The probability above which class 1 is predicted."""
        return THRESHOLD if self.chosen is None else self.chosen.value

    @cached_property
    def of_truth(self) -> np.ndarray:
        """The predicted probability of each molecule's true class, float64 [n]."""
        if self.binary:
            return np.where(self.true == 1, self.given, 1 - self.given)
        return np.take_along_axis(self.given, self.true[:, None], axis=1)[:, 0]
