"""Join the pieces of one set."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from molgcn.data.packed_arrays import ARRAYS

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_Set = TypeVar("_Set", bound="DataclassInstance")


class Gathered(Generic[_Set]):
    """Collects the pieces of one set, whose codes refer to one table, and joins them.

    Joining takes one array at a time, so that it needs no more memory beside the set than its largest array takes.
    """

    def __init__(self) -> None:
        self._first: _Set | None = None
        self._arrays: dict[str, list[Any]] = {array.name: [] for array in ARRAYS if array.axis != "table row"}

    def add(self, piece: _Set) -> None:
        """Append a piece. Everything but the arrays is taken from the first piece."""
        self._first = self._first or piece
        for name, values in self._arrays.items():
            values.append(getattr(piece, name))

    def whole(self) -> _Set:
        """Return the joined set and release the pieces. This can be called once."""
        assert self._first is not None
        joined = {array.name: array.join(self._arrays.pop(array.name)) for array in ARRAYS if array.name in self._arrays}
        return replace(self._first, **joined)
