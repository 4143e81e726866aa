"""The list of the arrays of a packed set, and of those that batches hold of them.

Saving, checking, selecting, joining and hashing follow from this list. So does what loaders gather: slots, pieces, sets in a GPU's memory,
C++ and CUDA have an array of the same name for each (cpu/collate.hpp and cuda/collate.cu).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast, get_args

import numpy as np

from molgcn.data.segments import pointers
from molgcn.data.strings import PackedStrings

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from molgcn.data.molecule_set import MoleculeSet


Axis = Literal["molecule", "molecule + 1", "atom", "bond", "table row"]

MOLECULES_AT_ONCE = 1 << 14  # work on a set in pieces of this size takes little memory beside it
_Set = TypeVar("_Set", bound="DataclassInstance")


@dataclass(frozen=True)
class PackedArray:
    """An array of :class:`molgcn.data.PackedMolecules`. Arrays of floats are matrices, all others are one-dimensional."""

    name: str  # name of the attribute and of the file
    axis: Axis  # what the entries, or the rows of a matrix, belong to
    dtypes: tuple[type, ...]  # the types that the array may have. `str` stands for `molgcn.data.strings.PackedStrings`
    optional: bool = False  # whether the array may be None
    seen: bool = True  # whether the array counts in the content hash. False for what a model does not see or what follows from other arrays
    table: str | None = None  # name of the array whose rows the codes stand for, or None for an array that is never coded
    # whether batches hold the array, as an attribute of the same name. It is float32 rows, or int32 for a one-dimensional array that is
    # never coded
    gathered: bool = False
    # name of the attribute in which batches hold the codes as int32, in place of their rows. None for rows
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
    PackedArray("atom_targets", "atom", (np.float32,), optional=True, gathered=True),
    PackedArray("bond_targets", "bond", (np.float32,), optional=True, gathered=True),
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
    PackedArray("bond_number", "bond", (np.int32,), optional=True, seen=False),
    PackedArray("rwse", "atom", (np.float32,), optional=True, seen=False, gathered=True),
    PackedArray("bond_rw", "bond", (np.float32,), optional=True, seen=False, gathered=True),
)


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


BatchAxis = Literal["molecule", "atom", "bond"]
NAMES = {
    axis: [name for array in ARRAYS if array.gathered and array.axis == axis for name in (array.name, array.gathered_codes) if name]
    for axis in get_args(BatchAxis)
}
"""The names of all arrays that a batch may hold, by what their entries belong to."""


@dataclass(frozen=True, eq=False)
class BatchArray:
    """An array of a packed set that batches hold."""

    name: str  # name of the batch's attribute, one of `NAMES`
    axis: BatchAxis  # what the entries belong to: "molecule", "atom" or "bond"
    values: np.ndarray  # the set's array, codes uint8 or uint16 [entries] or rows float32 [entries, columns]
    columns: int  # number of columns of the batch's float32 rows, or 0 where the batch holds the codes themselves as int32 [entries]
    table: np.ndarray | None  # float32 [K, columns], the rows that the codes stand for, or None

    @property
    def code_bytes(self) -> int:
        """Bytes of a code, 0 where `values` are rows."""
        return self.values.itemsize if self.values.ndim == 1 else 0

    @property
    def entry_bytes(self) -> int:
        """Bytes of an entry of `values`, which the C++ extension reads."""
        return self.values.itemsize * (1 if self.values.ndim == 1 else self.values.shape[1])

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Shape of one entry of the batch's array."""
        return (self.columns,) if self.columns else ()

    @property
    def batch_type(self) -> type[np.float32] | type[np.int32]:
        """NumPy type of the batch's array."""
        return np.float32 if self.columns else np.int32

    def take(self, places: np.ndarray | slice) -> np.ndarray:
        """Return a copy of the entries at `places` of the set, in the type of the batch's array."""
        values = self.values[places] if self.table is None else self.table[self.values[places]]
        return values.astype(self.batch_type)


def batch_arrays(molecules: MoleculeSet) -> list[BatchArray]:
    """Return the arrays that batches of a set hold: those of the set's arrays that are gathered."""
    found = []
    for array in ARRAYS:
        values = getattr(molecules, array.name)
        if not array.gathered or values is None:
            continue
        axis = cast(BatchAxis, array.axis)
        table = None if array.table is None else getattr(molecules, array.table)
        if table is not None and array.gathered_codes is not None:
            found.append(BatchArray(array.gathered_codes, axis, values, 0, None))
        else:
            rows = values if table is None else table
            found.append(BatchArray(array.name, axis, values, rows.shape[1] if rows.ndim == 2 else 0, table))
    return found
