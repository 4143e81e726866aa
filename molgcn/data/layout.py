"""The layout of batches, which the model chooses and the data module applies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

import numpy as np

from molgcn.data.merge_leaves import merge_leaves, refuse_merged
from molgcn.data.molecule_set import MoleculeSet
from molgcn.data.set_checks import check_once
from molgcn.data.tiles import HAS_EXTENSION
from molgcn.errors import UserError

if TYPE_CHECKING:
    import torch

_without_bonds: WeakKeyDictionary[MoleculeSet, MoleculeSet] = WeakKeyDictionary()
_MOLECULES_A_PIECE = 256  # encoded at once without the extension, which takes a float for each pair of an atom and an atom of the largest
_encoded: WeakKeyDictionary[MoleculeSet, MoleculeSet] = WeakKeyDictionary()


@dataclass(frozen=True)
class BatchLayout:
    """How batches are laid out for a model."""

    tile_nodes: int | None = None  # number of atoms that a tile has room for. None is 64, or 128 where a molecule needs it
    # whether equal leaves are one row (`molgcn.data.merge_leaves.merge_leaves`). It excludes `bonds`, `rwse` and `bond_rw`
    merge_leaves: bool = False
    join_single: bool = False  # whether a single molecule left over at the end of a training epoch joins the batch before
    bonds: bool = False  # whether batches hold bond features
    rwse: int = 0  # number of steps of the random walks that encode atoms (`molgcn.data.encodings`). 0 gives no encoding
    bond_rw: int = 0  # number of steps of the random walks that encode bonds (`molgcn.data.encodings`). 0 gives no encoding

    def __post_init__(self) -> None:
        if self.merge_leaves and (self.bonds or self.rwse or self.bond_rw):
            raise ValueError(
                "merge_leaves and bonds, which tell leaves apart, or encodings, which follow from all atoms, exclude each other"
            )


class LayoutChoice(Protocol):
    """Function by which a model chooses the :class:`BatchLayout` of a set."""

    def __call__(
        self, molecules: MoleculeSet, typical: np.ndarray, device: torch.device, precision: str, *, can_merge: bool
    ) -> BatchLayout:
        """Return the layout of the set's batches.

        The typical batch has the molecules at these positions, int [B]. The precision is the Trainer's, such as "32-true". With `can_merge`
        the loader can give batches whose equal leaves are one row.
        """
        ...


def lay_out(molecules: MoleculeSet, layout: BatchLayout) -> MoleculeSet:
    """Return the set with everything that the layout asks for, and nothing else.

    The result is kept as long as `molecules`, so that a second call computes nothing.
    """
    if layout.bonds and molecules.edge_attr is None:
        raise UserError(
            "model.bonds=true takes features of bonds, but the set has none. Choose dataset.features that describe bonds, give PyG's Data "
            "an edge_attr, or set model.bonds=false."
        )
    molecules = merge_leaves(molecules) if layout.merge_leaves else with_encodings(molecules, layout.rwse, layout.bond_rw)
    if layout.bonds or molecules.edge_attr is None:
        return molecules
    if molecules not in _without_bonds:
        _without_bonds[molecules] = replace(molecules, edge_attr=None, edge_table=None)
    return _without_bonds[molecules]


def with_encodings(molecules: MoleculeSet, rwse: int = 0, bond_rw: int = 0) -> MoleculeSet:
    """Return the set, which has all its atoms, with `rwse` [N, k] and `bond_rw` [E, k] for walks of k steps, each None for 0 steps.

    The latest result is kept as long as `molecules`, so that a second call computes nothing.
    """
    if _steps(molecules) == (rwse, bond_rw):
        return molecules
    if molecules not in _encoded or _steps(_encoded[molecules]) != (rwse, bond_rw):
        refuse_merged(molecules)
        atoms, bonds = set_encodings(molecules, rwse, bond_rw)
        _encoded[molecules] = replace(molecules, rwse=atoms if rwse else None, bond_rw=bonds if bond_rw else None)
    return _encoded[molecules]


def _steps(molecules: MoleculeSet) -> tuple[int, int]:
    atoms, bonds = (0 if array is None else array.shape[1] for array in (molecules.rwse, molecules.bond_rw))
    return atoms, bonds


def set_encodings(molecules: MoleculeSet, rwse: int, bond_rw: int, use_extension: bool = HAS_EXTENSION) -> tuple[np.ndarray, np.ndarray]:
    """Compute `rwse` float32 [N, k] and `bond_rw` float32 [E, k] of a set in C++ on all cores, or in PyTorch with the same results."""
    atoms = np.empty((molecules.num_nodes, rwse), np.float32)
    bonds = np.empty((molecules.num_edges, bond_rw), np.float32)
    if use_extension:
        from molgcn._cpu import walk_molecules

        check_once(molecules)
        walk_molecules(molecules.node_ptr, molecules.edge_ptr, molecules.degree, molecules.neighbors, atoms, bonds)
        return atoms, bonds
    from molgcn.data.batch import GraphBatch  # needs torch, which exported networks are used without
    from molgcn.data.encodings import columns_of, random_walks

    for first in range(0, len(molecules), _MOLECULES_A_PIECE):
        last = min(first + _MOLECULES_A_PIECE, len(molecules))
        batch = GraphBatch.from_packed(molecules, slice(first, last))
        of_atoms, of_bonds = random_walks(batch.edge_index, *columns_of(batch), rwse, bond_rw)
        atoms[molecules.node_ptr[first] : molecules.node_ptr[last]] = of_atoms
        bonds[molecules.edge_ptr[first] : molecules.edge_ptr[last]] = of_bonds
    return atoms, bonds
