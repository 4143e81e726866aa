"""Add up a loss on the device."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


class LossSum:
    """A loss summed on the device, always at the same place, and read only when it is asked for."""

    def __init__(self) -> None:
        self.sums: Tensor | None = None
        self._loaded = (0.0, 0.0)

    def update(self, sums: Tensor) -> None:
        """Adds float64 [2], a batch's sum and number of terms."""
        self._made(sums.device).add_(sums)

    def _made(self, device: torch.device) -> Tensor:
        if self.sums is None:
            self.sums = torch.tensor(self._loaded, dtype=torch.double, device=device)
        return self.sums

    def compute_and_reset(self, strategy: Any) -> float:
        """The mean over everything added on every rank since the last call; NaN when there was nothing."""
        sums = self.sums if self.sums is not None else torch.tensor(self._loaded, dtype=torch.double, device=strategy.root_device)
        total, count = strategy.reduce(sums.clone(), reduce_op="sum").tolist()
        self.load(None)
        return total / count if count else math.nan

    def state(self) -> tuple[float, float]:
        """Both sums as numbers."""
        if self.sums is None:
            return self._loaded
        total, count = self.sums.tolist()
        return total, count

    def load(self, state: tuple[float, float] | None) -> None:
        """Continues from :meth:`state`."""
        self._loaded = state or (0.0, 0.0)
        if self.sums is not None:
            self.sums.copy_(torch.tensor(self._loaded, dtype=torch.double))
