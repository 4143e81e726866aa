"""Several packed sets as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from molgcn.data.packed import PackedMolecules
from molgcn.data.packing import MAX_CODES, encode_rows
from molgcn.data.segments import pointers, smallest_uint
from molgcn.data.strings import PackedStrings
from molgcn.errors import UserError


def concat_packed(parts: Sequence[PackedMolecules]) -> PackedMolecules:
    """See :meth:`PackedMolecules.concat`."""
    if not parts:
        raise UserError("PackedMolecules.concat needs at least one set.")
    first = parts[0]
    for number, part in enumerate(parts[1:], start=1):
        for name in ("num_features", "features", "target_names", "target_units", "folded"):
            if getattr(part, name) != getattr(first, name):
                raise UserError(
                    f"Set {number} cannot be joined to set 0: its {name} is {getattr(part, name)!r}, not {getattr(first, name)!r}. "
                    "Featurise both sets alike and name their targets alike."
                )
    x, table = _concat_features(parts)
    smiles = [part.smiles for part in parts if part.smiles is not None]
    return replace(
        first,
        node_ptr=pointers(np.concatenate([np.diff(part.node_ptr) for part in parts])),
        edge_ptr=pointers(np.concatenate([np.diff(part.edge_ptr) for part in parts])),
        degree=np.concatenate([part.degree for part in parts]),
        neighbors=np.concatenate([part.neighbors for part in parts]),
        x=x,
        table=table,
        targets=np.concatenate([part.targets for part in parts]),
        rows=np.concatenate([part.rows for part in parts]),
        smiles=PackedStrings.concat(smiles) if len(smiles) == len(parts) else None,
        skipped=[row for part in parts for row in part.skipped],
        hashes=None,
    )


def _concat_features(parts: Sequence[PackedMolecules]) -> tuple[np.ndarray, np.ndarray | None]:
    tables = [part.table for part in parts if part.table is not None]
    if len(tables) < len(parts):
        coded = encode_rows(np.concatenate([part.node_features() for part in parts]))
        return coded or (np.concatenate([part.node_features() for part in parts]), None)
    table, codes = np.unique(np.concatenate(tables), axis=0, return_inverse=True)
    if len(table) > MAX_CODES:
        return np.concatenate([part.node_features() for part in parts]), None
    starts = pointers(np.array([len(part_table) for part_table in tables]))
    joined = np.concatenate([codes.ravel()[starts[i] :][part.x] for i, part in enumerate(parts)])
    return joined.astype(smallest_uint(len(table) - 1)), table
