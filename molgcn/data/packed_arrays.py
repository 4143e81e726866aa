"""The list of the arrays of a packed set.

Saving, checking, selecting, joining and hashing follow from this list. So does what loaders gather (:mod:`molgcn.data.batch_arrays`) in
slots, pieces, sets in a GPU's memory, C++ and CUDA.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakSet

import numpy as np

from molgcn.data.segments import pointers
from molgcn.data.strings import PackedStrings
from molgcn.errors import UserError

if TYPE_CHECKING:
    from molgcn.data.packed import PackedMolecules

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
    PackedArray("rows", "molecule", (np.int64,), seen=False),
    PackedArray("smiles", "molecule", (str,), optional=True, seen=False),
    PackedArray("hashes", "molecule", (np.uint64,), optional=True, seen=False),
    PackedArray("exact_hashes", "molecule", (np.uint64,), optional=True, seen=False),
    PackedArray("rwse", "atom", (np.float32,), optional=True, seen=False, gathered=True),
    PackedArray("bond_rw", "bond", (np.float32,), optional=True, seen=False, gathered=True),
)


def content_hash(molecules: PackedMolecules) -> str:
    """Return the sha256 of every array that a model sees."""
    digest = hashlib.sha256()
    for name in (array.name for array in ARRAYS if array.seen):
        value = getattr(molecules, name)
        if value is not None:
            digest.update(f"{name}{value.dtype}{value.shape}".encode())
            digest.update(np.ascontiguousarray(value).data)
    return digest.hexdigest()


_checked: WeakSet[PackedMolecules] = WeakSet()


def check_once(molecules: PackedMolecules) -> None:
    """Check a set the first time that batches are taken from it, since C++ and CUDA read its arrays by address.

    Raises:
        UserError: when an array does not fit, naming the first one.
    """
    if molecules in _checked:
        return
    try:
        check_arrays(molecules)
    except ValueError as error:
        raise UserError(
            f"The packed molecules do not fit together: {error}. Make the set with PackedMolecules.from_arrays, from_pyg or from_smiles."
        ) from error
    _checked.add(molecules)


def check_arrays(molecules: PackedMolecules) -> None:
    """Check types, lengths and content of a set's arrays, from which batches are gathered without further checks.

    Raises:
        ValueError: when an array does not fit, naming the first one.
    """
    for array in ARRAYS:
        value = getattr(molecules, array.name)
        if value is not None and str not in array.dtypes:
            _check_type(array, value)
    _check_offsets("node_ptr", molecules.node_ptr, 1)
    _check_offsets("edge_ptr", molecules.edge_ptr, 0)
    lengths = {
        "molecule": len(molecules),
        "molecule + 1": len(molecules) + 1,
        "atom": molecules.num_nodes,
        "bond": molecules.num_edges,
    }
    for array in ARRAYS:
        value = getattr(molecules, array.name)
        if isinstance(value, PackedStrings):
            _check_offsets(f"{array.name}_ptr", value.ptr, 0)
            if value.data.dtype != np.uint8 or len(value.data) != value.ptr[-1]:
                raise ValueError(f"{array.name} is not text of {value.ptr[-1]} bytes")
        if value is not None and len(value) != lengths.get(array.axis, len(value)):
            raise ValueError(f"{array.name} has {len(value)} entries where {lengths[array.axis]} belong")
        if array.table is not None:
            _check_codes(array, value, getattr(molecules, array.table))
    for node_ptr, edge_ptr in _in_pieces(molecules):
        bonds = np.diff(edge_ptr)
        degree, neighbors = molecules.degree[node_ptr[0] : node_ptr[-1]], molecules.neighbors[edge_ptr[0] : edge_ptr[-1]]
        if not np.array_equal(np.add.reduceat(degree, node_ptr[:-1] - node_ptr[0], dtype=np.int64), bonds):
            raise ValueError("degree does not add up to edge_ptr")
        if np.any(neighbors >= np.repeat(np.diff(node_ptr).astype(np.uint16), bonds)):
            raise ValueError("neighbors holds an atom that its molecule does not have")


def _check_type(array: PackedArray, value: np.ndarray) -> None:
    if value.dtype not in array.dtypes:
        expected = " or ".join(np.dtype(dtype).name for dtype in array.dtypes)
        raise ValueError(f"{array.name} is of type {value.dtype}, not {expected}")
    floats = value.dtype.kind == "f"
    if value.ndim != (2 if floats else 1) or not value.flags.c_contiguous:
        raise ValueError(f"{array.name} has shape {list(value.shape)}; expected a {'matrix, row after row' if floats else 'list'}")


def _check_codes(array: PackedArray, value: np.ndarray | None, table: np.ndarray | None) -> None:
    coded = value is not None and value.dtype != np.float32
    if coded != (table is not None):
        kind = "missing" if value is None else f"of type {value.dtype}"
        raise ValueError(f"{array.name} is {kind}, which {'needs a' if table is None else 'has no'} table")
    if value is not None and table is not None and len(value) and int(value.max()) >= len(table):
        raise ValueError(f"{array.name} holds a code beyond the table")


def _check_offsets(name: str, ptr: np.ndarray, least: int) -> None:
    if ptr.dtype != np.int64 or ptr.ndim != 1 or len(ptr) < 2 or ptr[0] != 0 or np.diff(ptr).min() < least:
        raise ValueError(f"{name} is not a list of int64 offsets that start with 0 and increase")


def _in_pieces(molecules: PackedMolecules) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield `node_ptr` and `edge_ptr` of consecutive pieces of a set."""
    for first in range(0, len(molecules), MOLECULES_AT_ONCE):
        piece = slice(first, first + MOLECULES_AT_ONCE + 1)
        yield molecules.node_ptr[piece], molecules.edge_ptr[piece]
