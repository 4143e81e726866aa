"""Packs the molecules of a row, such as a solute and its solvent, as one graph whose atoms know their component."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from molgcn.data.featurize import Featurized
from molgcn.data.packed import PackedMolecules
from molgcn.data.segments import smallest_uint


def num_components(molecules: PackedMolecules) -> int:
    """Return the number of molecules in each row of a set, k."""
    return 1 if molecules.component is None else int(molecules.component[-1]) + 1


def join_components(sets: Sequence[PackedMolecules], names: Sequence[str]) -> PackedMolecules:
    """Join k sets side by side: row i of the result is one graph of the molecules i of all sets, in order.

    Descriptors are joined too, each named `<component>.<descriptor>`. Targets, rows and SMILES are added later by
    :meth:`PackedMolecules.with_data`.
    """
    count, total = len(sets), len(sets[0])
    bare = [replace(one, descriptors=None, descriptor_names=(), tree_descriptors=None) for one in sets]
    apart = PackedMolecules.concat(bare)[np.arange(count * total).reshape(count, total).T.ravel()]
    sizes, bonds = apart.num_nodes_per_graph, np.diff(apart.edge_ptr)
    starts = apart.node_ptr[:-1] - np.repeat(apart.node_ptr[:-1:count], count)  # first atom of each component, counted in its row
    neighbors = apart.neighbors + np.repeat(starts, bonds)
    joined: dict[str, Any] = {
        "node_ptr": apart.node_ptr[::count].copy(),
        "edge_ptr": apart.edge_ptr[::count].copy(),
        "neighbors": neighbors.astype(smallest_uint(int(neighbors.max(initial=0)))),
        "component": np.repeat(np.tile(np.arange(count, dtype=np.uint8), total), sizes),
        "targets": np.zeros((total, 0), np.float32),
        "rows": np.arange(total),
        "target_names": (),
        "target_units": (),
    }
    if apart.bond_number is not None:
        before = apart.edge_ptr[:-1] - np.repeat(apart.edge_ptr[:-1:count], count)  # both directions of the bonds of components before
        joined["bond_number"] = (apart.bond_number + np.repeat(before // 2, bonds)).astype(np.int32)
    for name in ("descriptors", "tree_descriptors"):
        if getattr(sets[0], name) is not None:
            joined[name] = np.concatenate([getattr(one, name) for one in sets], axis=1)
    if sets[0].descriptors is not None:
        joined["descriptor_names"] = names_of_row(sets[0].descriptor_names, names)
    return replace(apart, smiles=None, hashes=None, exact_hashes=None, **joined)


def names_of_row(descriptors: Sequence[str], components: Sequence[str]) -> tuple[str, ...]:
    """Return the names of descriptors that are computed for each component.

    Where there are several components, each name is `<component>.<descriptor>`.
    """
    if len(components) == 1:
        return tuple(descriptors)
    return tuple(f"{component}.{name}" for component in components for name in descriptors)


def featurize_components(columns: Sequence[Sequence[str]], names: Sequence[str], featurize: Callable[..., Featurized]) -> Featurized:
    """Featurise the SMILES of k columns and join the molecules of each row.

    `featurize` takes a list of SMILES and the name of their column.

    Returns:
        The rows in which every component is a molecule, and the reasons why the other rows were left out.
    """
    parts = [featurize(column, name) for column, name in zip(columns, names, strict=True)]
    failures: dict[int, str] = {}
    for part, name in zip(reversed(parts), reversed(names), strict=True):
        failures |= {place: f"{name}: {reason}" for place, reason in part.failures}
    kept = np.setdiff1d(np.arange(len(columns[0])), list(failures))
    sets = [
        PackedMolecules.of(part.molecules)[np.searchsorted(part.kept, kept)] for part in parts if part.molecules is not None and len(kept)
    ]
    return Featurized(join_components(sets, names) if sets else None, kept, failures=sorted(failures.items()))
