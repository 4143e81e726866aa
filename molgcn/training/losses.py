"""Losses over the targets that are there."""

from __future__ import annotations

import torch
from torch import Tensor

from molgcn.config import TrainingConfig
from molgcn.ops.masked_loss import masked_loss, masked_loss_reference


class MaskedLoss:
    """The loss that `training.loss` names, over targets that are not missing.

    Args:
        config: `loss` and `huber_delta`.
        fused: use this project's operator where there is one: float32 on a GPU.
    """

    def __init__(self, config: TrainingConfig, fused: bool) -> None:
        self.options = (config.loss, config.huber_delta)
        self.fused = fused

    def __call__(self, prediction: Tensor, target: Tensor, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
        """The mean loss and float64 [2], sum and number of its terms; arguments as :func:`molgcn.ops.masked_loss.masked_loss`."""
        if prediction.dtype == torch.bfloat16:  # of a head under autocast
            prediction = prediction.float()
        takes = self.fused and prediction.is_cuda and prediction.dtype == torch.float32
        return (masked_loss if takes else masked_loss_reference)(prediction, target, mean, std, *self.options)
