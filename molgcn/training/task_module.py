"""A LightningModule that learns a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Self

import torch
from lightning import LightningModule
from torch import Tensor

from molgcn.tasks.base import Task


class TaskModule(LightningModule):
    """A module with its task, and with the task's statistics of the training set as buffers.

    Args:
        task: what the outputs mean.
        statistics: the task's statistics in its own order, by the names of their buffers. Those in float64 stay float64 whatever the
            module is converted to: float32 has too few digits for them.
    """

    def __init__(self, task: Task, statistics: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.task = task
        for name, values in statistics.items():
            self.register_buffer(name, values)

    @property
    def statistics(self) -> tuple[Tensor, ...]:
        """The task's statistics, in the order in which its methods take them."""
        return tuple(self._buffers.values())  # type: ignore[arg-type]

    @property
    def target_digits(self) -> list[int]:
        """The number of significant digits in which each column of predictions is written."""
        return self.task.digits(*self.statistics)

    def decode(self, outputs: Tensor) -> Tensor:
        """Turn the network's outputs [B, O] into predictions, float64 [B, P]."""
        return self.task.decode(outputs, *self.statistics)

    def for_loss(self, targets: Tensor) -> tuple[Tensor, ...]:
        """Turn labels [B, L] and the task's statistics into what the loss takes; see :meth:`molgcn.tasks.base.Task.for_loss`."""
        return self.task.for_loss(targets, self.dtype, *self.statistics)  # type: ignore[arg-type]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move and convert the module; statistics in float64 keep their dtype."""
        kept = {name: values for name, values in self._buffers.items() if values is not None and values.dtype == torch.float64}
        super()._apply(fn, recurse)
        for name, values in kept.items():
            setattr(self, name, values.to(getattr(self, name).device))
        return self
