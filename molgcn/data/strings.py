"""Sequences of strings in two flat arrays, so that a data set's SMILES load by memory map."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise
from typing import overload

import numpy as np

from molgcn.data.segments import pointers, segment_index

STRINGS_AT_ONCE = 1 << 16  # Python strings that are in memory at once beside the arrays


class PackedStrings(Sequence[str]):
    """An immutable sequence of strings stored as UTF-8 bytes and offsets.

    Args:
        data: uint8 [total bytes], the strings in UTF-8 one after the other.
        ptr: int64 [n + 1], first byte of each string.
    """

    def __init__(self, data: np.ndarray, ptr: np.ndarray) -> None:
        self.data = data
        self.ptr = ptr

    @classmethod
    def from_strings(cls, strings: Iterable[str]) -> PackedStrings:
        """Pack the given strings."""
        if isinstance(strings, cls):
            return strings
        rest, data, sizes = iter(strings), [], [np.empty(0, np.int64)]
        while block := [text.encode() for text in islice(rest, STRINGS_AT_ONCE)]:
            data.append(b"".join(block))
            sizes.append(np.array([len(text) for text in block], np.int64))
        return cls(np.frombuffer(b"".join(data), np.uint8), pointers(np.concatenate(sizes)))

    @classmethod
    def columns(cls, rows: Iterable[Sequence[str]]) -> list[PackedStrings]:
        """Pack rows of strings column by column. Without rows the result has no columns."""
        rest, pieces = iter(rows), []
        while block := list(islice(rest, STRINGS_AT_ONCE)):
            pieces.append([cls.from_strings(column) for column in zip(*block, strict=True)])
        return [cls.concat(column) for column in zip(*pieces, strict=True)]

    @classmethod
    def concat(cls, parts: Sequence[PackedStrings]) -> PackedStrings:
        """Return all strings of `parts`, in order."""
        sizes = np.concatenate([np.diff(part.ptr) for part in parts])
        return cls(np.concatenate([part.data for part in parts]), pointers(sizes))

    def take(self, indices: np.ndarray) -> PackedStrings:
        """Return the strings at `indices`, int [m], in that order."""
        starts, sizes = self.ptr[:-1][indices], np.diff(self.ptr)[indices]
        return PackedStrings(self.data[segment_index(starts, sizes)], pointers(sizes))

    def __len__(self) -> int:
        return len(self.ptr) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                return [self[i] for i in range(start, stop, step)]
            ptr = self.ptr[start : max(start, stop) + 1]
            text = self.data[ptr[0] : ptr[-1]].tobytes()
            return [text[first:last].decode() for first, last in pairwise((ptr - ptr[0]).tolist())]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        return self.data[self.ptr[index] : self.ptr[index + 1]].tobytes().decode()

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self[start : start + STRINGS_AT_ONCE] for start in range(0, len(self), STRINGS_AT_ONCE))

    def __eq__(self, other: object) -> bool:
        """Return whether `other` is any sequence of the same strings."""
        return isinstance(other, Sequence) and not isinstance(other, str) and list(self) == list(other)
