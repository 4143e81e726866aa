"""Many strings in two flat arrays, so that a data set's SMILES load by memory map."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import numpy as np

from molgcn.data.segments import pointers, segment_index


class PackedStrings(Sequence[str]):
    """An immutable sequence of strings stored as UTF-8 bytes and offsets.

    Args:
        data: uint8 [total bytes], the strings one after the other.
        ptr: int64 [n + 1], where each string starts.
    """

    def __init__(self, data: np.ndarray, ptr: np.ndarray) -> None:
        self.data = data
        self.ptr = ptr

    @classmethod
    def from_strings(cls, strings: Iterable[str]) -> PackedStrings:
        """Packs the given strings."""
        encoded = [text.encode() for text in strings]
        sizes = np.array([len(text) for text in encoded], np.int64)
        return cls(np.frombuffer(b"".join(encoded), np.uint8), pointers(sizes))

    @classmethod
    def concat(cls, parts: Sequence[PackedStrings]) -> PackedStrings:
        """All strings of `parts`, in order."""
        sizes = np.concatenate([np.diff(part.ptr) for part in parts])
        return cls(np.concatenate([part.data for part in parts]), pointers(sizes))

    def take(self, indices: np.ndarray) -> PackedStrings:
        """The strings at `indices` (int array), in that order."""
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
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        return self.data[self.ptr[index] : self.ptr[index + 1]].tobytes().decode()

    def __iter__(self) -> Iterator[str]:
        return (self[i] for i in range(len(self)))
