"""Losses over the targets that are there."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from molgcn.config import TrainingConfig


def masked_loss(config: TrainingConfig) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The loss that `training.loss` names, summed over targets that are not missing.

    Returns:
        A function of predictions [B, T] and targets [B, T] (NaN = missing) that gives the sum of mse, l1 or huber terms
        (Huber, 1964, with `training.huber_delta`) and the number of terms, both scalar tensors. Their quotient is the loss;
        where nothing is known the sum and all its gradients are zero.
    """

    def elementwise(prediction: Tensor, target: Tensor) -> Tensor:
        if config.loss == "huber":
            return F.huber_loss(prediction, target, reduction="none", delta=config.huber_delta)
        return (F.mse_loss if config.loss == "mse" else F.l1_loss)(prediction, target, reduction="none")

    def loss(prediction: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        known = ~torch.isnan(target)
        terms = elementwise(prediction, torch.where(known, target, prediction.detach()))
        return torch.where(known, terms, 0.0).sum(), known.sum()

    return loss
