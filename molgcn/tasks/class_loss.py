"""The losses of classification over the labels that are not missing, by PyTorch's functions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from molgcn.config.training import TrainingConfig
from molgcn.ops.masked_mean import Weighing, masked_mean
from molgcn.ops.precision import without_bfloat16


class ClassLoss:
    r"""The negative log-likelihood of the true class (`bce` and `ce`), or its focal form, over labels that are not missing.

    The focal loss (Lin et al., ICCV 2017) is :math:`-(1 - p)^\gamma \log p` with the probability :math:`p` of the true class. With
    `class_weights=balanced` a label of class c weighs :math:`1 / (C f_c)`, where :math:`f_c` is the share of that class among the training
    part's labels, so that the mean weight is 1. A label of a class that training lacks weighs 1.

    Args:
        config: gives `loss`, `focal_gamma` and `class_weights`.
    """

    def __init__(self, config: TrainingConfig) -> None:
        self.options = (config.loss, config.focal_gamma, config.class_weights)

    def __call__(self, outputs: Tensor, labels: Tensor, frequencies: Tensor, weighing: Weighing | None = None) -> tuple[Tensor, Tensor]:
        """Return the mean loss and the sum and number of its terms, float64 [2].

        Args:
            outputs: [B, T], the logits of class 1, or [B, T * C], each target's C logits.
            labels: [B, T], classes, NaN where missing.
            frequencies: [T, C], each class's share of the training part's labels.
            weighing: the weights of the labels, or None where all weigh the same.
        """
        outputs = without_bfloat16(outputs)
        name, gamma, weights = self.options
        known = ~labels.isnan()
        classes = torch.where(known, labels, 0.0)
        if outputs.shape == labels.shape:
            terms = F.binary_cross_entropy_with_logits(outputs, classes.to(outputs.dtype), reduction="none")
        else:
            logits = outputs.reshape(labels.numel(), -1)
            terms = F.cross_entropy(logits, classes.long().flatten(), reduction="none").view_as(labels)
        if name == "focal":
            wrong = -torch.expm1(-terms)  # 1 - p, kept above 0, where a power below 1 has no derivative
            terms = wrong.clamp(min=torch.finfo(terms.dtype).tiny) ** gamma * terms
        if weights == "balanced":
            balance = torch.where(frequencies > 0, 1 / (frequencies.shape[1] * frequencies), 1.0)
            terms = terms * balance.expand(len(labels), -1, -1).gather(2, classes.long()[..., None])[..., 0]
        return masked_mean(terms, known, weighing)

    def of_model(self, model: Any, batch: Any, *taken: Any) -> tuple[Tensor, Tensor]:
        """Return the loss of a model's outputs for a batch; see :meth:`__call__`."""
        return self(model(batch), *taken)
