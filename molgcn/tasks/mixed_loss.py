"""The loss of several tasks at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from molgcn.tasks.loss import Loss


class MixedLoss:
    r"""Computes the mean over the known terms of all targets, :math:`\sum_i n_i L_i / \sum_i n_i`.

    Part :math:`i` has the loss :math:`L_i` and :math:`n_i` known terms.

    Args:
        losses: the losses of the parts.
        sizes: the number of outputs of each part, one part after the other.
    """

    def __init__(self, losses: Sequence[Loss], sizes: Sequence[int]) -> None:
        self.losses = list(losses)
        self.sizes = list(sizes)

    @property
    def options(self) -> tuple[Any, ...]:
        """The options of each part's loss; see :class:`molgcn.tasks.loss.Loss`."""
        return tuple(loss.options for loss in self.losses)

    def __call__(self, outputs: Tensor, *taken: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return the mean loss and the sum and number of its terms, float64 [2].

        Args:
            outputs: [B, O], those of one part after those of the other.
            *taken: what each part's loss takes beside its outputs.
        """
        given = zip(self.losses, outputs.split(self.sizes, dim=1), taken, strict=True)
        means, sums = zip(*(loss(one.contiguous(), *own) for loss, one, own in given), strict=True)
        total = torch.stack(sums).sum(0)
        shares = torch.stack(sums)[:, 1] / total[1].clamp(min=1)
        return (torch.stack(means) * shares.to(means[0].dtype)).sum(), total

    def of_model(self, model: Any, batch: Any, *taken: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return the loss of a model's outputs for a batch; see :meth:`__call__`."""
        return self(model(batch), *taken)
