"""Classification of targets that are 0 or 1: a network learns the probability of 1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

from molgcn.tasks.classes import ClassTask


@dataclass(frozen=True)
class Classification(ClassTask):
    """Predict for each of T targets the probability of class 1, from one output."""

    num_classes: int = 2
    name = "classification"
    losses = ("bce", "focal")

    @property
    def advice(self) -> str:
        """The advice about a label that is neither 0 nor 1, for messages."""
        return (
            "Expected 0, 1 or an empty cell. Correct it, use task=multiclass for classes 0, 1, 2, ... or task=regression for numbers; "
            "dataset.duplicates=mean and median average the labels of copies, first does not."
        )

    @property
    def columns(self) -> list[list[str]]:
        """The header of each target's column, "<target> probability", followed by the name of class 1 where it has one."""
        return [[f"{label} probability {self.class_name(place, 1) or ''}".rstrip()] for place, label in enumerate(self.labels)]

    def output_layer(self, *statistics: Tensor) -> nn.Module:
        return nn.Sigmoid()

    def by_target(self, predictions: np.ndarray) -> list[np.ndarray]:
        """Return each target's probabilities [M] of class 1."""
        return list(predictions.T)

    def joined(self, probabilities: np.ndarray) -> np.ndarray:
        """Return the probabilities of class 1, [M, T], among those of both classes, [M, T, 2]."""
        return probabilities[..., 1]
