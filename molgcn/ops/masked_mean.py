"""The mean of a loss over the known targets. This is the only place where terms of a loss are added up in PyTorch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Weighing(NamedTuple):
    """The weights and bounds of targets [B, T], which change how much each term of the loss counts.

    Attributes:
        weights: The factor of each term [B, T].
        bounds: -1 if the true value is below the target, 1 if it is above, otherwise 0 [B, T]. None means no bounds.
    """

    weights: Tensor
    bounds: Tensor | None = None


def masked_mean(terms: Tensor, known: Tensor, weighing: Weighing | None = None) -> tuple[Tensor, Tensor]:
    """Return the mean loss over the known targets, and the sums that it is made of.

    Args:
        terms: Each target's loss [B, T]. It must be finite for missing targets too.
        known: Whether each target is known, bool [B, T].
        weighing: The weights that the terms are multiplied by, or None. The mean is over the number of terms in any case.

    Returns:
        - mean: The mean, a scalar in the dtype of `terms`; 0 if no target is known.
        - sums: The sum and the number of the known terms, float64 [2].
    """
    if weighing is not None:
        terms = terms * torch.where(known, weighing.weights, 0.0)
    total, count = torch.where(known, terms, 0.0).sum(), known.sum()
    return total / count.clamp(min=1), torch.stack((total.detach().double(), count.double()))


def within_bounds(terms: Tensor, values: Tensor, targets: Tensor, weighing: Weighing | None) -> Tensor:
    """Return the terms [B, T] with 0 wherever the prediction is on the right side of its target's bound.

    Args:
        terms: The loss of each prediction [B, T].
        values: The predictions [B, T].
        targets: The targets [B, T], on the same scale as the predictions.
        weighing: The targets' bounds, or None.
    """
    if weighing is None or weighing.bounds is None:
        return terms
    right = torch.where(weighing.bounds < 0, values < targets, (weighing.bounds > 0) & (values > targets))
    return torch.where(right, 0.0, terms)
