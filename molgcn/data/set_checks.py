"""Check the arrays of a packed set before C++ and CUDA read them by address."""

from __future__ import annotations

from weakref import WeakSet

import numpy as np

from molgcn.data.molecule_set import MoleculeSet
from molgcn.data.packed_arrays import ARRAYS, MOLECULES_AT_ONCE, PackedArray
from molgcn.data.strings import PackedStrings
from molgcn.errors import UserError

_checked: WeakSet[MoleculeSet] = WeakSet()


def check_once(molecules: MoleculeSet) -> None:
    """Check a set the first time that batches are taken from it, and raise UserError that names the first array that does not fit."""
    if molecules in _checked:
        return
    try:
        check_arrays(molecules)
    except ValueError as error:
        raise UserError(
            f"The packed molecules do not fit together: {error}. Make the set with PackedMolecules.from_arrays, from_pyg or from_smiles."
        ) from error
    _checked.add(molecules)


def check_arrays(molecules: MoleculeSet) -> None:
    """Check types, lengths and content of a set's arrays, and raise ValueError that names the first array that does not fit.

    Batches are gathered from them without further checks.
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
    for first in range(0, len(molecules), MOLECULES_AT_ONCE):
        node_ptr, edge_ptr = (ptr[first : first + MOLECULES_AT_ONCE + 1] for ptr in (molecules.node_ptr, molecules.edge_ptr))
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
