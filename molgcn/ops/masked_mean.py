"""The mean of a loss over the targets that are there: the one place where its terms are added up."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Weighing(NamedTuple):
    """What of targets [B, T] decides beside the loss how much each costs.

    Attributes:
        weights: [B, T], factors of the terms.
        bounds: [B, T], -1 where the true value is below the target, 1 where it is above, else 0; None without bounds.
    """

    weights: Tensor
    bounds: Tensor | None = None


def masked_mean(terms: Tensor, known: Tensor, weighing: Weighing | None = None) -> tuple[Tensor, Tensor]:
    """Return the mean loss over known targets, and what it is made of.

    Args:
        terms: [B, T], each target's loss, finite where it is not known too.
        known: bool [B, T], false where a target is missing.
        weighing: with weights each term is multiplied by its own; the mean is still over the number of terms.

    Returns:
        - mean: scalar in the dtype of `terms`, 0 where nothing is known
        - sums: float64 [2], sum and number of the terms that count
    """
    if weighing is not None:
        terms = terms * torch.where(known, weighing.weights, 0.0)
    total, count = torch.where(known, terms, 0.0).sum(), known.sum()
    return total / count.clamp(min=1), torch.stack((total.detach().double(), count.double()))


def within_bounds(terms: Tensor, values: Tensor, targets: Tensor, weighing: Weighing | None) -> Tensor:
    """Return terms [B, T] with 0 in place of those whose value is on the right side of its bound.

    Args:
        terms: the loss of values given targets.
        values: [B, T], predicted.
        targets: [B, T], on the same scale.
        weighing: the targets' bounds.
    """
    if weighing is None or weighing.bounds is None:
        return terms
    right = torch.where(weighing.bounds < 0, values < targets, (weighing.bounds > 0) & (values > targets))
    return torch.where(right, 0.0, terms)
