"""Tensors as views of one piece of memory, several of them by one call."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor


class Views:
    """Tensors as views of one piece of memory. Those of one shape that lie at regular distances are made together, which is faster.

    Args:
        tensors: The shape, the strides and the offset of each tensor, or None for none.
    """

    def __init__(self, tensors: Sequence[tuple[torch.Size, tuple[int, ...], int] | None]) -> None:
        groups = dict[tuple[torch.Size, tuple[int, ...]], list[tuple[int, int]]]()
        for place, view in enumerate(tensors):
            if view is not None:
                groups.setdefault(view[:2], []).append((view[2], place))
        self._blocks, order = list[_Block](), dict[int, int]()
        for (shape, strides), members in groups.items():
            members.sort()
            while members:
                step = members[1][0] - members[0][0] if len(members) > 1 else 1
                count = next((n for n in range(1, len(members)) if members[n][0] - members[n - 1][0] != step), len(members))
                self._blocks.append(_Block.of(shape, strides, members[0][0], count, step))
                order |= {place: len(order) + index for index, (_, place) in enumerate(members[:count])}
                members = members[count:]
        self._order = [order.get(place, -1) for place in range(len(tensors))]

    def of(self, memory: Tensor) -> list[Tensor | None]:
        """Return the tensors in the order in which they were given."""
        made = [*chain.from_iterable(block.parts(memory) for block in self._blocks), None]
        return [made[place] for place in self._order]


class _Block(NamedTuple):
    """Tensors of one shape at regular distances in one piece of memory.

    Attributes:
        shape: The shape of all of them together.
        strides: The strides of that.
        begin: The offset of the first one.
        rows: The number of rows of each, of those of all one after another; None where each is a row, and empty for a single one.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    begin: int
    rows: list[int] | None

    @staticmethod
    def of(shape: torch.Size, strides: tuple[int, ...], begin: int, count: int, step: int) -> _Block:
        """Return `count` tensors at a distance of `step`."""
        if count == 1:
            return _Block(shape, strides, begin, [])
        if shape and step == shape.numel() == shape[0] * strides[0]:
            return _Block((count * shape[0], *shape[1:]), strides, begin, [shape[0]] * count)
        return _Block((count, *shape), (step, *strides), begin, None)

    def parts(self, memory: Tensor) -> Sequence[Tensor]:
        """Return the tensors. Those that lie one after another count writes to themselves alone, which is faster."""
        together = memory.as_strided(self.shape, self.strides, self.begin)
        if self.rows is None:
            return together.unbind()
        return torch.unsafe_split_with_sizes(together, self.rows) if self.rows else (together,)
