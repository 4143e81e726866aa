"""Sums over all rows: blocks or warps each leave a part, and `cuda/part_sums.cu` adds the parts up in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from molgcn.cuda_runtime.launch import kernel
from molgcn.cuda_runtime.structs import Header

_MAX_SUMS = 128  # the most sums of a launch
_THREADS = 256  # threads of a block
_VECTOR_BYTES = 16  # the alignment of four numbers
_MOST_PARTS = 8  # a number with more parts is shared by several threads
_MOST_SHARES, _MANY_SHARES = 8, 32  # at most so many threads, the second where there are more than `_MANY_PARTS` parts
_MANY_PARTS = 256

_HEADER = Header(
    "part_sums_structs.h",
    Sum=[
        ("const real*", "parts add"),  # add may be null
        ("real*", "out"),
        ("int", "num_parts step numbers shares first_block"),
        ("int", "vector"),  # the numbers of a thread
    ],
    Parameters=[("Sum", "sums[MAX_SUMS]"), ("int", "num_sums")],
)
_PARAMETERS = _HEADER.ctype(MAX_SUMS=_MAX_SUMS)


def source(number_bytes: int) -> tuple[str, dict[str, int]]:
    """Return the source and the macros of the kernel that adds up numbers of so many bytes."""
    return "part_sums.cu", {"MAX_SUMS": _MAX_SUMS, "DOUBLE": int(number_bytes == 8)}


class Sum(NamedTuple):
    """Numbers of which there are several parts to add up.

    Attributes:
        out: The address of the sums.
        numbers: How many numbers there are.
        parts: The address of the first part.
        num_parts: The number of parts.
        step: The distance between two parts, in numbers.
        add: The address of numbers that are added to the sums, or 0.
    """

    out: int
    numbers: int
    parts: int
    num_parts: int
    step: int
    add: int = 0

    @property
    def shares(self) -> int:
        """The number of threads that share the parts of a number."""
        shares = 1
        while shares < (_MANY_SHARES if self.num_parts > _MANY_PARTS else _MOST_SHARES) and self.num_parts > _MOST_PARTS * shares:
            shares *= 2
        return shares

    def vector(self, number_bytes: int) -> int:
        """Return how many numbers, of `number_bytes` bytes, a thread adds up: four where each part has whole aligned fours."""
        aligned = all(address % _VECTOR_BYTES == 0 for address in (self.out, self.parts, self.add))
        return 4 if aligned and self.numbers % 4 == 0 and self.step % 4 == 0 else 1


class PartSums:
    """The sums of a pass whose parts have been left and are still to be added up.

    Args:
        like: A tensor of the dtype of the sums, on their device.
    """

    def __init__(self, like: Tensor) -> None:
        self._like = like
        self._waiting: list[Sum] = []

    def add(self, left: Sum) -> None:
        """Remember a sum until :meth:`launch`. It may add the result of an earlier one."""
        self._waiting.append(left)

    def add_outs(self, outs: Sequence[Tensor], parts: int, num_parts: int, more: Sequence[bool] | None = None) -> None:
        """Remember the sums of tensors whose numbers lie one after another in each of the parts, which begin at address `parts`.

        Args:
            outs: The tensors.
            parts: The address of the first part.
            num_parts: The number of parts.
            more: Whether the sums are added to what each tensor holds; None for none.
        """
        step = sum(out.numel() for out in outs)
        for out, adds in zip(outs, more or [False] * len(outs), strict=True):
            address = out.data_ptr()
            self.add(Sum(address, out.numel(), parts, num_parts, step, address if adds else 0))
            parts += out.numel() * self._like.element_size()

    def add_zeros(self, out: Tensor) -> None:
        """Remember to set a tensor to zero, which is the sum of no parts."""
        if out.numel() > 0:
            self.add(Sum(out.data_ptr(), out.numel(), parts=0, num_parts=0, step=0))

    def take(self, out: int) -> Sum | None:
        """Return the sum with the address `out` and forget it, or None if it is not waiting."""
        found = next((left for left in self._waiting if left.out == out), None)
        if found is not None:
            self._waiting.remove(found)
        return found

    def launch(self) -> None:
        """Add up all parts that have been left since the last call."""
        number_bytes = self._like.element_size()
        file, defines = source(number_bytes)
        for some in self._together():
            it: Any = _PARAMETERS(num_sums=len(some))
            blocks = 0
            for each, left in zip(it.sums, some, strict=False):
                each.out, each.numbers, each.parts, each.num_parts, each.step, each.add = left
                each.shares, each.first_block, each.vector = left.shares, blocks, left.vector(number_bytes)
                blocks += -(-left.numbers * left.shares // (_THREADS * each.vector))
            function = kernel(file, "part_sums", defines, self._like.device)
            function.launch(blocks, _THREADS, 4 * number_bytes * _THREADS, it, overlap=True)

    def _together(self) -> Iterator[list[Sum]]:
        """Yield the waiting sums of each launch, and forget them. What another sum adds is made by an earlier launch."""
        some: list[Sum] = []
        for left in self._waiting:
            if len(some) == _MAX_SUMS or any(left.add == other.out for other in some):
                yield some
                some = []
            some.append(left)
        self._waiting = []
        if some:
            yield some
