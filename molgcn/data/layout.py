"""The layout of batches, which the model chooses and the data module applies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol
from weakref import WeakKeyDictionary

import numpy as np
import torch

from molgcn.data.merge_leaves import merge_leaves
from molgcn.data.molecule_set import MoleculeSet
from molgcn.data.set_encodings import with_encodings
from molgcn.errors import UserError

_without_bonds: WeakKeyDictionary[MoleculeSet, MoleculeSet] = WeakKeyDictionary()


@dataclass(frozen=True)
class BatchLayout:
    """How batches are laid out for a model.

    Attributes:
        tile_nodes: number of atoms that a tile has room for. None is 64, or 128 where a molecule needs it.
        merge_leaves: whether equal leaves are one row (:func:`molgcn.data.merge_leaves.merge_leaves`). It excludes `bonds`, `rwse` and
            `bond_rw`.
        join_single: whether a single molecule left over at the end of a training epoch joins the batch before.
        bonds: whether batches hold bond features.
        rwse: number of steps of the random walks that encode atoms (:mod:`molgcn.data.encodings`). 0 gives no encoding.
        bond_rw: number of steps of the random walks that encode bonds (:mod:`molgcn.data.encodings`). 0 gives no encoding.
    """

    tile_nodes: int | None = None
    merge_leaves: bool = False
    join_single: bool = False
    bonds: bool = False
    rwse: int = 0
    bond_rw: int = 0

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

        Args:
            molecules: the set.
            typical: int [B], positions of the molecules of a typical batch.
            device: device on which the model runs.
            precision: precision of the Trainer, such as "32-true".
            can_merge: whether the loader can give batches whose equal leaves are one row.
        """
        ...


def lay_out(molecules: MoleculeSet, layout: BatchLayout) -> MoleculeSet:
    """Return the set with everything that the layout asks for, and nothing else.

    The result is kept as long as `molecules`, so that a second call computes nothing.

    Args:
        molecules: the set.
        layout: layout of the batches.

    Raises:
        UserError: when the layout asks for bond features that the set does not have.
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
