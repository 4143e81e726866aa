"""What a section of the report gets: one target's true and predicted values."""

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
    """A target of numbers.

    Attributes:
        subject: what the page is about.
        errors: the target's, of the n molecules whose true value is known and whose prediction is finite.
        scaffolds: of the M molecules, or None.
        draw: gives the picture of a SMILES.
    """

    subject: Subject
    errors: Errors
    scaffolds: Sequence[str] | None
    draw: Draw

    @property
    def missing(self) -> int:
        """Molecules without a true value."""
        return len(self.subject.molecules) - len(self.errors.index) - self.errors.unpredicted


@dataclass(frozen=True)
class ClassView:
    """A target of classes.

    Attributes:
        subject: what the page is about.
        place: of the target.
        index: int64 [n], molecules whose class is known and whose probabilities are finite.
        true: int64 [n], their classes.
        given: their probabilities [n] of class 1, or [n, C].
        titles: what to call the C classes.
        unpredicted: molecules left out because a probability is not finite.
        draw: gives the picture of a SMILES.
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
        """Take a target's labels, its probabilities [M] or [M, C] and what to call its classes."""
        labels = subject.molecules.targets[:, place]
        known, finite = ~np.isnan(labels), np.isfinite(probabilities.reshape(len(labels), -1)).all(axis=1)
        index = np.flatnonzero(known & finite)
        given = probabilities[index].astype(np.float64)
        return cls(subject, place, index, labels[index].astype(np.int64), given, titles, int((known & ~finite).sum()), draw)

    @property
    def name(self) -> str:
        """The target."""
        return self.subject.names[self.place]

    @property
    def binary(self) -> bool:
        """Whether there are two classes, of which one probability tells."""
        return self.given.ndim == 1

    @property
    def chosen(self) -> Threshold | None:
        """The threshold that validation has chosen."""
        return self.subject.comparison.thresholds.get(self.name)

    @property
    def threshold(self) -> float:
        """The probability above which class 1 is decided for."""
        return THRESHOLD if self.chosen is None else self.chosen.value

    @cached_property
    def of_truth(self) -> np.ndarray:
        """Each molecule's probability [n] of its true class."""
        if self.binary:
            return np.where(self.true == 1, self.given, 1 - self.given)
        return np.take_along_axis(self.given, self.true[:, None], axis=1)[:, 0]
