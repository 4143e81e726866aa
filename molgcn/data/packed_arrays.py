"""The list of the arrays of a packed set.

Saving, checking, selecting, joining and hashing follow from this list. So does what loaders gather (:mod:`molgcn.data.batch_arrays`) in
slots, pieces, sets in a GPU's memory, C++ and CUDA.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import numpy as np

from molgcn.data.segments import pointers
from molgcn.data.strings import PackedStrings

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


Axis = Literal["molecule", "molecule + 1", "atom", "bond", "table row"]

MOLECULES_AT_ONCE = 1 << 14  # work on a set in pieces of this size takes little memory beside it


@dataclass(frozen=True)
class PackedArray:
    """An array of :class:`molgcn.data.PackedMolecules`. Arrays of floats are matrices, all others are one-dimensional.

    Attributes:
        name: name of the attribute and of the file.
        axis: what the entries, or the rows of a matrix, belong to.
        dtypes: the types that the array may have. `str` stands for :class:`molgcn.data.strings.PackedStrings`.
        optional: whether the array may be None.
        seen: whether the array counts in the content hash. False for what a model does not see or what follows from other arrays.
        table: name of the array whose rows the codes stand for, or None for an array that is never coded.
        gathered: whether batches hold the array, as an attribute of the same name. It is float32 rows, or int32 for a one-dimensional array
            that is never coded.
        gathered_codes: name of the attribute in which batches hold the codes as int32, in place of their rows. None for rows.
    """

    name: str
    axis: Axis
    dtypes: tuple[type, ...]
    optional: bool = False
    seen: bool = True
    table: str | None = None
    gathered: bool = False
    gathered_codes: str | None = None

    def take(self, value: Any, places: np.ndarray) -> Any:
        """Return the entries of `value` at `places` along the axis, or None if `value` is None."""
        return value.take(places) if isinstance(value, PackedStrings) else None if value is None else value[places]

    def join(self, values: Sequence[Any]) -> Any:
        """Join the arrays of several sets into one, or return None if one of the sets has none."""
        if any(value is None for value in values):
            return None
        if len(values) == 1:
            return values[0]
        if isinstance(values[0], PackedStrings):
            return PackedStrings.concat(values)
        if self.axis == "molecule + 1":
            return pointers(np.concatenate([np.diff(value) for value in values]))
        return np.concatenate(values)


ARRAYS = (
    PackedArray("node_ptr", "molecule + 1", (np.int64,)),
    PackedArray("edge_ptr", "molecule + 1", (np.int64,)),
    PackedArray("degree", "atom", (np.uint8, np.uint16)),
    PackedArray("neighbors", "bond", (np.uint8, np.uint16)),
    PackedArray("x", "atom", (np.uint8, np.uint16, np.float32), table="table", gathered=True),
    PackedArray("table", "table row", (np.float32,), optional=True),
    PackedArray("targets", "molecule", (np.float32, np.float64)),
    PackedArray("bounds", "molecule", (np.float32,), optional=True),
    PackedArray("weights", "molecule", (np.float32,), optional=True),
    PackedArray(
        "edge_attr", "bond", (np.uint8, np.uint16, np.float32), optional=True, table="edge_table", gathered=True, gathered_codes="edge_code"
    ),
    PackedArray("edge_table", "table row", (np.float32,), optional=True),
    PackedArray("component", "atom", (np.uint8,), optional=True, gathered=True),
    PackedArray("descriptors", "molecule", (np.float32,), optional=True, gathered=True),
    PackedArray("tree_descriptors", "molecule", (np.float32,), optional=True, seen=False),
    PackedArray("rows", "molecule", (np.int64,), seen=False),
    PackedArray("smiles", "molecule", (str,), optional=True, seen=False),
    PackedArray("hashes", "molecule", (np.uint64,), optional=True, seen=False),
    PackedArray("exact_hashes", "molecule", (np.uint64,), optional=True, seen=False),
    PackedArray("rwse", "atom", (np.float32,), optional=True, seen=False, gathered=True),
    PackedArray("bond_rw", "bond", (np.float32,), optional=True, seen=False, gathered=True),
)


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
