"""The arrays that a batch holds for each molecule, atom and bond beside the graph, derived from the list of a packed set's arrays.

Slots, pieces and sets in a GPU's memory have an array of the same name for each. cpu/collate.hpp and cuda/collate.cu gather them all alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast, get_args

import numpy as np

from molgcn.data.molecule_set import MoleculeSet
from molgcn.data.packed_arrays import ARRAYS

BatchAxis = Literal["molecule", "atom", "bond"]
NAMES = {
    axis: [name for array in ARRAYS if array.gathered and array.axis == axis for name in (array.name, array.gathered_codes) if name]
    for axis in get_args(BatchAxis)
}
"""The names of all arrays that a batch may hold, by what their entries belong to."""


@dataclass(frozen=True, eq=False)
class BatchArray:
    """An array of a packed set that batches hold.

    Attributes:
        name: name of the batch's attribute, one of :data:`NAMES`.
        axis: what the entries belong to: "molecule", "atom" or "bond".
        values: the set's array, codes uint8 or uint16 [entries] or rows float32 [entries, columns].
        columns: number of columns of the batch's float32 rows, or 0 where the batch holds the codes themselves as int32 [entries].
        table: float32 [K, columns], the rows that the codes stand for, or None.
    """

    name: str
    axis: BatchAxis
    values: np.ndarray
    columns: int
    table: np.ndarray | None

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
