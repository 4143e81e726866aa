"""The scratch memory, the sums and the order of rows that the kernels of one pass share."""

from __future__ import annotations

import torch
from torch import Tensor

from molgcn.ops.layer_network.early_launches import ALONE
from molgcn.ops.layer_network.memory import FEW_ATOMS
from molgcn.ops.part_sums import PartSums


class Workspace:
    """The scratch memory, the sums and the order of rows of one pass.

    The memory is freed with the pass. This is safe before its kernels have run, since only later kernels of the same stream reuse it.

    Args:
        like: A tensor of the pass's dtype, on the device.
        overlaps: Whether the first kernel may start before what comes before the pass has ended. In a forward pass it may not: kernels read
            the batch and the parameters before they wait, and anything may have written these. Backward reads what forward has read.

    Attributes:
        sums: The sums whose parts kernels have left.
        overlaps: Whether the next kernel on rows or product may start before the previous kernel has ended. It may not where it reads
            what that kernel has prepared before it waits itself.
        beside: How the next launch of products runs beside other kernels.
    """

    def __init__(self, like: Tensor, *, overlaps: bool) -> None:
        self.sums = PartSums(like)
        self.overlaps = overlaps
        self.beside = ALONE
        self._like = like
        self._backwards = False
        self._kept: list[Tensor] = []
        self._reused = like.new_empty(0, dtype=torch.uint8)

    def next_backwards(self, num_rows: int, *, either_way: bool = True) -> bool:
        """Return whether the next launch goes through its rows from the last to the first, as every other one of a large batch does.

        It then begins with the rows that the launch before has written last, which the L2 cache still has.

        Args:
            num_rows: The number of rows.
            either_way: Whether the kernel can. Otherwise it goes from the first row to the last.
        """
        self._backwards = either_way and not self._backwards and num_rows > FEW_ATOMS
        return self._backwards

    def scratch(self, num_bytes: int) -> int:
        """Return the address of `num_bytes` bytes of uninitialised memory."""
        self._kept.append(self._like.new_empty(num_bytes, dtype=torch.uint8))
        return self._kept[-1].data_ptr()

    def scratch_of_launch(self, num_bytes: int) -> int:
        """Return the address of `num_bytes` bytes of uninitialised memory for one launch. Later launches use the same memory."""
        if num_bytes > self._reused.shape[0]:
            self._reused = self._like.new_empty(num_bytes, dtype=torch.uint8)
        return self._reused.data_ptr()
