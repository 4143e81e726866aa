"""The mean of a loss over the targets that are there: the one place where its terms are added up."""

from __future__ import annotations

import torch
from torch import Tensor


def masked_mean(terms: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean loss over known targets, and what it is made of.

    Args:
        terms: [B, T], each target's loss, finite where it is not known too.
        known: bool [B, T], false where a target is missing.

    Returns:
        - mean: scalar in the dtype of `terms`, 0 where nothing is known
        - sums: float64 [2], sum and number of the terms that count
    """
    total, count = torch.where(known, terms, 0.0).sum(), known.sum()
    return total / count.clamp(min=1), torch.stack((total.detach().double(), count.double()))
