"""Multiclass classification of targets that are 0, 1, 2, ...: a network learns the probability of each class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

from molgcn.nn.output_layers import ClassProbabilities
from molgcn.tasks.classes import ClassTask


@dataclass(frozen=True)
class Multiclass(ClassTask):
    """Predict for each of T targets the probabilities of C classes, from C outputs.

    All targets have the same C, which is the number of classes of the target with most.
    """

    name = "multiclass"
    losses = ("ce", "focal")

    @property
    def advice(self) -> str:
        """The advice about a label that is not the number of a class, for messages."""
        return (
            f"Expected a whole number from 0 to {self.num_classes - 1} or an empty cell. Number the classes from 0, or use "
            "task=regression for numbers."
        )

    @property
    def num_outputs(self) -> int:
        """The number of a network's outputs, O = T * C."""
        return len(self.names) * self.num_classes

    @property
    def columns(self) -> list[list[str]]:
        """The headers of each target's columns, "<target> probability <class>"."""
        return [[f"{label} probability {one}" for one in titles] for label, titles in zip(self.labels, self.class_titles, strict=True)]

    def output_layer(self, *statistics: Tensor) -> nn.Module:
        """Return the softmax over each target's classes."""
        return ClassProbabilities(self.num_classes)

    def by_target(self, predictions: np.ndarray) -> list[np.ndarray]:
        """Return each target's probabilities [M, C]."""
        return np.split(predictions, len(self.names), axis=1)

    def joined(self, probabilities: np.ndarray) -> np.ndarray:
        """Flatten probabilities [M, T, C] into predictions [M, T * C], target by target."""
        return probabilities.reshape(len(probabilities), -1)
