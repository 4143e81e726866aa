"""Merges equal leaves into one row, so that a GPU does not compute them twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from molgcn.data.molecule_set import MoleculeSet
from molgcn.data.packed_arrays import ARRAYS, MOLECULES_AT_ONCE
from molgcn.data.segments import pointers
from molgcn.data.tiles import HAS_EXTENSION
from molgcn.errors import UserError

_merged: WeakKeyDictionary[MoleculeSet, MoleculeSet] = WeakKeyDictionary()


def merge_leaves(molecules: MoleculeSet) -> MoleculeSet:
    """Return the set with one row for all atoms of the same features whose only bond goes to the same atom, such as a methyl's hydrogens.

    Every layer gives such atoms the same values, except for dropout. Their neighbour lists the row once for each of the atoms, and the row
    lists the neighbour once. Degrees and sums over neighbours therefore stay the same. A row stands for as many atoms as its neighbour
    lists it.

    Args:
        molecules: a set. It is returned as it is if its features are not coded, since hardly any atoms are then equal, or if the C++
            extension is not built.

    Returns:
        A set with `leaves_merged` True, made once and kept as long as `molecules`. Rows are in the order of their first atoms, and the
        neighbours of a row in the order of the original atoms.
    """
    if molecules.leaves_merged or molecules.table is None or not HAS_EXTENSION:
        return molecules
    if molecules not in _merged:
        _merged[molecules] = _merge_all(molecules)
    return _merged[molecules]


def refuse_merged(molecules: MoleculeSet) -> None:
    """Raise UserError for a set whose equal leaves are one row."""
    if molecules.leaves_merged:
        raise UserError("Equal leaves of this set are one row, for kernels alone. Take the set that it was made from.")


def _merge_all(molecules: MoleculeSet) -> MoleculeSet:
    starts = range(0, len(molecules), MOLECULES_AT_ONCE)
    parts = [_merge(molecules, start, min(start + MOLECULES_AT_ONCE, len(molecules))) for start in starts]
    num_nodes, num_edges, degree, neighbors, x = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    others: dict[str, Any] = {array.name: None for array in ARRAYS if array.axis in ("atom", "bond") and array.optional}
    others["edge_table"] = None  # models that see bonds or encodings take sets that have all atoms
    return replace(
        molecules,
        node_ptr=pointers(num_nodes),
        edge_ptr=pointers(num_edges),
        degree=degree,
        neighbors=neighbors,
        x=x,
        leaves_merged=True,
        **others,
    )


def _merge(molecules: MoleculeSet, first: int, last: int) -> tuple[np.ndarray, ...]:
    """Return the numbers of rows and bonds of each molecule first ... last - 1, then `degree`, `neighbors` and `x` of all of them."""
    from molgcn._cpu import leaf_rows

    node_ptr, edge_ptr = (ptr[first : last + 1] - ptr[first] for ptr in (molecules.node_ptr, molecules.edge_ptr))
    nodes, edges = (slice(ptr[first], ptr[last]) for ptr in (molecules.node_ptr, molecules.edge_ptr))
    degree, neighbors, x = molecules.degree[nodes], molecules.neighbors[edges], molecules.x[nodes]
    base = np.repeat(node_ptr[:-1], np.diff(node_ptr))  # first atom of each atom's molecule
    row = np.empty(len(degree), np.int32)  # row of each atom, counted in its molecule
    leaf_rows(node_ptr, degree, neighbors, x, row)
    kept = np.diff(np.maximum.accumulate(base + row), prepend=-1) > 0  # the first atom of each row
    bonds = np.repeat(kept, degree)
    sources = neighbors[bonds] + np.repeat(base, degree)[bonds]
    return (
        np.diff(pointers(kept)[node_ptr]),
        np.diff(pointers(bonds)[edge_ptr]),
        degree[kept],
        row[sources].astype(neighbors.dtype),
        x[kept],
    )
