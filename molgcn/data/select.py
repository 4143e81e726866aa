"""Selects molecules of a packed set."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from molgcn.data.concat import Gathered
from molgcn.data.packed_arrays import ARRAYS, MOLECULES_AT_ONCE
from molgcn.data.segments import pointers, segment_index
from molgcn.errors import UserError

if TYPE_CHECKING:
    from molgcn.data.packed import PackedMolecules


def select_packed(molecules: PackedMolecules, indices: np.ndarray) -> PackedMolecules:
    """Return a set of the molecules at `indices`, int64 [n], in that order.

    Raises:
        UserError: when `indices` is empty.
    """
    if len(indices) == 0:
        raise UserError("The selection holds no molecules. Expected at least one.")
    taken = Gathered()
    for start in range(0, len(indices), MOLECULES_AT_ONCE):
        taken.add(_take(molecules, indices[start : start + MOLECULES_AT_ONCE]))
    return taken.whole()


def _take(molecules: PackedMolecules, indices: np.ndarray) -> PackedMolecules:
    num_nodes, num_edges = molecules.num_nodes_per_graph[indices], np.diff(molecules.edge_ptr)[indices]
    places = {
        "molecule": indices,
        "atom": segment_index(molecules.node_ptr[:-1][indices], num_nodes),
        "bond": segment_index(molecules.edge_ptr[:-1][indices], num_edges),
    }
    taken = {array.name: array.take(getattr(molecules, array.name), places[array.axis]) for array in ARRAYS if array.axis in places}
    return replace(molecules, node_ptr=pointers(num_nodes), edge_ptr=pointers(num_edges), **taken)
