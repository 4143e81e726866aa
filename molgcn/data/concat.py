"""Joins packed sets into one: whole sets, or chunks of one set as they are featurised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from molgcn.data.molecule_set import MoleculeSet
from molgcn.data.packed_arrays import ARRAYS, PackedArray
from molgcn.data.packing import MAX_CODES, check_table, encode_rows
from molgcn.data.segments import pointers, smallest_uint
from molgcn.errors import UserError

_Set = TypeVar("_Set", bound=MoleculeSet)

_NAMES = ("descriptor_names", "atom_feature_names", "bond_feature_names")
# hashes may depend on the whole set, encodings are made for the steps that a model wants
_MADE_ANEW = ("hashes", "exact_hashes", "rwse", "bond_rw")


def concat_packed(parts: Sequence[_Set]) -> _Set:
    """Join packed sets into one, see :meth:`PackedMolecules.concat`."""
    if not parts:
        raise UserError("PackedMolecules.concat needs at least one set.")
    first = parts[0]
    for number, part in enumerate(parts[1:], start=1):
        for name in ("num_features", "num_edge_features", "features", *_NAMES, "target_names", "target_units", "leaves_merged"):
            if getattr(part, name) != getattr(first, name):
                raise UserError(
                    f"Set {number} cannot be joined to set 0: its {name} is {getattr(part, name)!r}, not {getattr(first, name)!r}. "
                    "Featurise both sets alike and name their targets alike."
                )
    for name in ("bounds", "weights", "tree_descriptors"):
        if len({getattr(part, name) is None for part in parts}) > 1:
            raise UserError(f"Sets with and without {name} cannot be joined. Give all of them some, or none.")
    joined: dict[str, Any] = dict.fromkeys(_MADE_ANEW)
    joined |= {
        array.name: array.join([getattr(part, array.name) for part in parts])
        for array in ARRAYS
        if array.axis != "table row" and not array.table and array.name not in _MADE_ANEW
    }
    for array in ARRAYS:
        if array.table is not None:
            joined[array.name], joined[array.table] = _concat_features(parts, array.name, array.table)
    return replace(first, **joined, skipped=[row for part in parts for row in part.skipped], files=(), num_rows=None)


def _concat_features(parts: Sequence[MoleculeSet], name: str, table_name: str) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return the codes of all parts and their common table, or the rows and None, or None twice where the parts have no such features."""
    values, tables = [getattr(part, name) for part in parts], [getattr(part, table_name) for part in parts]
    if values[0] is None:
        return None, None

    def rows() -> np.ndarray:
        return np.concatenate([value if table is None else table[value] for value, table in zip(values, tables, strict=True)])

    if any(table is None for table in tables):
        return encode_rows(rows(), "bond" if name == "edge_attr" else "atom") or (rows(), None)
    table, codes = np.unique(np.concatenate(tables), axis=0, return_inverse=True)
    if len(table) > MAX_CODES:
        return rows(), None
    starts = pointers(np.array([len(part_table) for part_table in tables]))
    joined = np.concatenate([codes.ravel()[start:][value] for start, value in zip(starts, values, strict=False)])
    return joined.astype(smallest_uint(len(table) - 1)), table


class FeatureTable:
    """The distinct feature rows of all chunks, in order of first appearance, for one array of codes."""

    def __init__(self, array: PackedArray) -> None:
        assert array.table is not None
        self._array, self._table = array.name, array.table
        self._codes: dict[bytes, int] = {}

    def recode(self, molecules: MoleculeSet) -> MoleculeSet:
        """Add a chunk's new rows to this table, and return the chunk with codes into it. Without such features it stays as it is."""
        table = getattr(molecules, self._table)
        if table is None:
            return molecules
        codes = np.array([self._codes.setdefault(row.tobytes(), len(self._codes)) for row in table], np.int64)
        recoded: dict[str, Any] = {self._array: codes.astype(smallest_uint(len(self._codes) - 1))[getattr(molecules, self._array)]}
        return replace(molecules, **recoded)

    def attach(self, molecules: MoleculeSet) -> MoleculeSet:
        """Return the joined molecules with this table in place of the first chunk's."""
        table = getattr(molecules, self._table)
        if table is None:
            return molecules
        rows = np.frombuffer(bytearray().join(self._codes), np.float32).reshape(-1, table.shape[1])
        attached: dict[str, Any] = {self._table: check_table(rows, self._table)}
        return replace(molecules, **attached)
