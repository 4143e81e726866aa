"""Memory that kernels of one pass use among themselves."""

from __future__ import annotations

import torch
from torch import Tensor

_COUNTERS = 1 << 14


class Workspace:
    """Counters and scratch memory of one pass, freed with it; what is freed then is used again by later kernels of the same stream.

    Args:
        like: a tensor on the device.
    """

    def __init__(self, like: Tensor) -> None:
        self._like = like
        self._counters = like.new_empty(0, dtype=torch.int32)
        self._used = 0
        self._kept: list[Tensor] = []

    def counters(self, number: int) -> int:
        """Return the address of so many uint32 that are 0 and nobody else's."""
        if self._used + number > self._counters.shape[0]:
            self._counters = self._like.new_zeros(max(number, _COUNTERS), dtype=torch.int32)
            self._kept.append(self._counters)
            self._used = 0
        address = self._counters.data_ptr() + 4 * self._used
        self._used += number
        return address

    def scratch(self, num_bytes: int) -> int:
        """Return the address of so many bytes, uninitialised."""
        self._kept.append(self._like.new_empty(num_bytes, dtype=torch.uint8))
        return self._kept[-1].data_ptr()
