"""Join the tables of distinct feature rows that chunks of molecules have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from molgcn.data.molecule_set import MoleculeSet
from molgcn.data.packed_arrays import PackedArray
from molgcn.data.packing import check_table
from molgcn.data.segments import smallest_uint


class FeatureTable:
    """The distinct feature rows of all chunks, in order of first appearance, for one array of codes.

    Args:
        array: the array, whose codes are rows of a table.
    """

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
