"""Lay out values and gradients in memory, so that those that are needed at different times share it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

ALIGNMENT = 64  # numbers: 256 bytes of float32
FEW_ATOMS = 8192  # up to this many atoms in a batch, a GPU spends more time on launches than on computing


Key = TypeVar("Key", bound=Hashable)


class Span(NamedTuple):
    """A piece of memory and the time that it is needed for.

    Attributes:
        size: The size in numbers.
        first: The step that writes it.
        last: The last step that reads it.
    """

    size: int
    first: int
    last: int


class Layout(NamedTuple, Generic[Key]):
    """The offsets of pieces of memory.

    Attributes:
        offsets: The offset of each piece in numbers, a multiple of :data:`ALIGNMENT`.
        size: The total size in numbers.
        over: The piece of other memory whose place each of some pieces takes, which have no offset then.
    """

    offsets: Mapping[Key, int]
    size: int
    over: Mapping[Key, Key] = MappingProxyType({})


def aligned(numbers: int) -> int:
    """Return how many numbers a piece takes: a multiple of :data:`ALIGNMENT`."""
    return -(-numbers // ALIGNMENT) * ALIGNMENT


def stride_of(width: int) -> int:
    """Return the distance between two rows in numbers: the width rounded up to a multiple of four, since kernels load four at a time."""
    return -(-width // 4) * 4


def lay_out(spans: Mapping[Key, Span]) -> Layout[Key]:
    """Return a layout in which pieces that are needed at the same time do not overlap: first fit, in the order of time or of size.

    In the order of time, small pieces may take the place that a large one needs later. The smaller of both layouts is returned.
    """
    by_time = sorted(spans.items(), key=lambda item: (item[1].first, -item[1].size))
    by_size = sorted(by_time, key=lambda item: -item[1].size)
    return min((_first_fit(order) for order in (by_time, by_size)), key=lambda layout: layout.size)


def _first_fit(spans: Sequence[tuple[Key, Span]]) -> Layout[Key]:
    taken: list[tuple[int, int, Span]] = []  # first and last number, and span
    offsets: dict[Key, int] = {}
    for key, span in spans:
        size, at = aligned(span.size), 0
        for begin, end, other in sorted(taken, key=lambda each: each[:2]):
            together = other.last >= span.first and span.last >= other.first
            if together and begin < at + size and at < end:
                at = end
        taken.append((at, at + size, span))
        offsets[key] = at
    return Layout(offsets, max((end for _, end, _ in taken), default=0))


def side_by_side(sizes: Mapping[Key, int]) -> Layout[Key]:
    """Return a layout of pieces that are all needed at the same time."""
    offsets, size = dict[Key, int](), 0
    for key in sizes:
        offsets[key] = size
        size += aligned(sizes[key])
    return Layout(offsets, size)


def spans(sizes: Mapping[Key, int], touched: Sequence[Iterable[Key]], until_end: Iterable[Key] = ()) -> dict[Key, Span]:
    """Return the spans of pieces from the steps that touch them.

    Args:
        sizes: The size of each piece in numbers. Pieces without a size are left out.
        touched: The pieces that each step reads or writes.
        until_end: The pieces that are needed after the last step.
    """
    found: dict[Key, Span] = {}
    for time, keys in enumerate(touched):
        for key in keys:
            if key in sizes:
                found[key] = Span(sizes[key], found[key].first if key in found else time, time)
    return {key: span._replace(last=len(touched)) if key in set(until_end) else span for key, span in found.items()}
