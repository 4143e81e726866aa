"""The gradients of a step that several batches make, one after another or on several devices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


class MeanGradients:
    """Makes gradients those of the mean loss over all known labels of a step, as if one batch had them all.

    Batches may differ in how many labels they have, so their mean losses must not be averaged. Backward passes add up gradients of sums
    instead, and :meth:`divide` divides these by the number of terms before the optimiser's step.

    Args:
        several: whether several batches make a step.
    """

    def __init__(self, several: bool) -> None:
        self._several = several
        self._one: Tensor | None = None

    def weight(self, loss: Tensor, sums: Tensor) -> Tensor:
        """Return the gradient with which a backward pass begins, from a batch's mean loss, and the sum and number of terms, float64 [2]."""
        if self._one is None:
            self._one, self._num_terms = torch.ones_like(loss), torch.zeros_like(sums[1])
        if not self._several:
            return self._one
        self._num_terms += sums[1]
        return sums[1].to(loss.dtype)

    def divide(self, parameters: Iterable[Tensor], strategy: Any) -> None:
        """Divide the gradients of a step, which Lightning has averaged, by the number of its terms; every rank has to call this."""
        if not self._several:
            return
        num_terms = strategy.reduce(self._num_terms.clone(), reduce_op="sum").clamp(min=1) / strategy.world_size
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        torch._foreach_div_(gradients, num_terms.to(gradients[0].dtype))
        self._num_terms.zero_()
