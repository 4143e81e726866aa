"""What batches hold of each molecule, atom and bond beside the graph: it follows from the list of the packed set's arrays.

Slots, pieces and sets in a GPU's memory have an array for each, of the same name; cpu/collate.hpp and cuda/collate.cu gather all alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast, get_args

import numpy as np

from molgcn.data.packed import PackedMolecules
from molgcn.data.packed_arrays import ARRAYS

BatchAxis = Literal["molecule", "atom", "bond"]
NAMES = {
    axis: [name for array in ARRAYS if array.gathered and array.axis == axis for name in (array.name, array.gathered_codes) if name]
    for axis in get_args(BatchAxis)
}
"""All that batches may hold of a molecule, atom or bond."""


@dataclass(frozen=True, eq=False)
class BatchArray:
    """An array of a packed set that batches hold.

    Attributes:
        name: of the batch's attribute, one of :data:`NAMES`.
        axis: what its entries belong to.
        values: codes uint8 or uint16 [entries], or float32 [entries, columns], as the set has them.
        columns: of the batch's float32 rows; 0 where the batch holds the codes themselves, as int32 [entries].
        table: float32 [K, columns], of which codes are rows, or None.
    """

    name: str
    axis: BatchAxis
    values: np.ndarray
    columns: int
    table: np.ndarray | None

    @property
    def code_bytes(self) -> int:
        """Bytes of a code; 0 where `values` are rows."""
        return self.values.itemsize if self.values.ndim == 1 else 0

    @property
    def entry_bytes(self) -> int:
        """Bytes of an entry of `values`."""
        return self.values.itemsize * (1 if self.values.ndim == 1 else self.values.shape[1])

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """What follows the number of entries in the shape of the batch's array."""
        return (self.columns,) if self.columns else ()

    @property
    def batch_type(self) -> type[np.float32] | type[np.int32]:
        """Type of the batch's array."""
        return np.float32 if self.columns else np.int32

    def take(self, places: np.ndarray | slice) -> np.ndarray:
        """Return the batch's entries for those at `places` of the set, a copy."""
        values = self.values[places] if self.table is None else self.table[self.values[places]]
        return values.astype(self.batch_type)


def batch_arrays(molecules: PackedMolecules) -> list[BatchArray]:
    """Return what batches of a set hold: of the arrays that may be gathered those that it has."""
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
            found.append(BatchArray(array.name, axis, values, (values if table is None else table).shape[1], table))
    return found
