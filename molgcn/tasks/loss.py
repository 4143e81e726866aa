"""The interface of a task's loss."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor


class Loss(Protocol):
    """Computes a task's loss over the targets that are not missing."""

    @property
    def options(self) -> tuple[Any, ...]:
        """The options that the loss reads beside tensors; CUDA graphs of training steps are captured anew where they change."""

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Return the mean loss, and the sum and the number of its terms in float64 [2].

        Args:
            *args: the outputs [B, O], and then the values of :meth:`.base.Task.for_loss`.
            **kwargs: the same by name.
        """

    def of_model(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Return the loss of a model for a batch as :meth:`__call__` does, by fused operators where there are some.

        Args:
            *args: the model and the batch, and then the values of :meth:`.base.Task.for_loss`.
            **kwargs: the same by name.
        """
