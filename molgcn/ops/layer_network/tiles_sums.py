"""Sums over all tiles of a backward pass: every warp has its own, and `cuda/tile_sums.cu` adds them up in order."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from molgcn.cuda_runtime.launch import kernel
from molgcn.ops.layer_network.tiles_arguments import MAX_SUMS, SUMS
from molgcn.ops.layer_network.workspace import Workspace

_COLUMNS, _THREADS = 32, 256  # of a block


class _Gradient(NamedTuple):
    out: int
    add: int
    first: int


class TileSums:
    """The gradients of one launch that are sums over all atoms or bonds."""

    def __init__(self) -> None:
        self.count = 0  # numbers of a warp
        self._gradients: list[_Gradient] = []
        self._address = 0

    def add(self, out: int, numbers: int, add: int = 0) -> int:
        """Return where a warp's numbers for another gradient begin.

        Args:
            out: The address of the gradient.
            numbers: How many numbers it has.
            add: The address of a gradient that is added to it, or 0. If that is one of this launch, they share their sums, and only the
                later one is written.
        """
        for index, gradient in enumerate(self._gradients):
            if add != 0 and gradient.out == add:
                self._gradients[index] = gradient._replace(out=out)
                return gradient.first
        self._gradients.append(_Gradient(out, add, self.count))
        self.count += numbers
        return self._gradients[-1].first

    def reserve(self, workspace: Workspace, warps: int) -> int:
        """Return the address of memory for the numbers of all warps until :meth:`launch`."""
        self._address = workspace.scratch_of_launch(4 * warps * self.count)
        return self._address

    def launch(self, warps: int, device: torch.device) -> None:
        """Add up the numbers of all warps."""
        if self.count == 0:
            return
        it: Any = SUMS(sums=self._address, num_rows=warps, num_sums=self.count, num_gradients=len(self._gradients))
        for each, gradient in zip(it.gradients, self._gradients, strict=False):
            each.out, each.add, each.first = gradient
        function = kernel("tile_sums.cu", "tile_sums", {"MAX_SUMS": MAX_SUMS}, device)
        function.launch(-(-self.count // _COLUMNS), _THREADS, 4 * _THREADS, it, overlap=True)
