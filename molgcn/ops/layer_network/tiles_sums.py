"""Sums over all tiles of a backward pass, of which every warp leaves a part."""

from __future__ import annotations

from molgcn.ops.layer_network.workspace import Workspace
from molgcn.ops.part_sums import Sum


class TileSums:
    """The gradients of one launch that are sums over all atoms or bonds."""

    def __init__(self) -> None:
        self.count = 0  # numbers of a warp
        self._sums: list[Sum] = []  # the address of a part is where a warp's numbers begin

    def add(self, out: int, numbers: int, add: int = 0) -> int:
        """Return where a warp's numbers for another gradient begin.

        Args:
            out: The address of the gradient.
            numbers: How many numbers it has.
            add: The address of a gradient that is added to it, or 0. If that is one of this launch, they share their sums, and only the
                later one is written.
        """
        for index, other in enumerate(self._sums):
            if add != 0 and other.out == add:
                self._sums[index] = other._replace(out=out)
                return other.parts
        self._sums.append(Sum(out, numbers, self.count, 0, 0, add))
        self.count += numbers
        return self._sums[-1].parts

    def leave(self, workspace: Workspace, warps: int) -> int:
        """Return the address of memory in which all warps leave their numbers. They are added up with the sums of `workspace`."""
        address = workspace.scratch_of_launch(4 * warps * self.count)
        for it in self._sums:
            workspace.sums.add(it._replace(parts=address + 4 * it.parts, num_parts=warps, step=self.count))
        return address
