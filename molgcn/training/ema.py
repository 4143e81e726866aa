"""Exponential moving average of the weights."""

from __future__ import annotations

import copy

import torch
from torch import nn


class ExponentialMovingAverage(nn.Module):
    r"""A copy of a model that follows it: :math:`\bar\theta \leftarrow d \bar\theta + (1 - d) \theta` after each step.

    Buffers (running statistics of batch norm) are copied as they are. Nothing is read back from the device.

    Args:
        model: the model in training.
        decay: :math:`d`, between 0 and 1.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        super().__init__()
        self.module = copy.deepcopy(model).requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Take the model's current weights into the average, and copy its buffers."""
        torch._foreach_lerp_(list(self.module.parameters()), list(model.parameters()), 1.0 - self.decay)
        for mine, theirs in zip(self.module.buffers(), model.buffers(), strict=True):
            mine.copy_(theirs)
