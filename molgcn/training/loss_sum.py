"""Add up a loss on the device."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


class LossSum:
    """Sums a loss on the device, always in the same tensor, and reads it only on request.

    Attributes:
        sums: float64 [2], the sum of the loss's terms and their number; None before the first batch.
    """

    def __init__(self) -> None:
        self.sums: Tensor | None = None
        self._loaded = (0.0, 0.0)

    def update(self, sums: Tensor) -> None:
        """Add a batch's sum and number of terms, float64 [2]."""
        self._made(sums.device).add_(sums)

    def _made(self, device: torch.device) -> Tensor:
        if self.sums is None:
            self.sums = torch.tensor(self._loaded, dtype=torch.double, device=device)
        return self.sums

    def compute_and_reset(self, strategy: Any) -> float:
        """Return the mean over everything added on every rank since the last call, and start anew; NaN where there was nothing.

        Args:
            strategy: Lightning's strategy, which adds up the sums of all ranks. Every rank has to call this.
        """
        sums = self.sums if self.sums is not None else torch.tensor(self._loaded, dtype=torch.double, device=strategy.root_device)
        total, count = strategy.reduce(sums.clone(), reduce_op="sum").tolist()
        self.load(None)
        return total / count if count else math.nan

    def state(self) -> tuple[float, float]:
        """Return the sum and the number of terms as Python numbers."""
        if self.sums is None:
            return self._loaded
        total, count = self.sums.tolist()
        return total, count

    def load(self, state: tuple[float, float] | None) -> None:
        """Restore what :meth:`state` returned; None starts anew."""
        self._loaded = state or (0.0, 0.0)
        if self.sums is not None:
            self.sums.copy_(torch.tensor(self._loaded, dtype=torch.double))
