"""The layout of batches: what a model wishes and the data module obeys."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol
from weakref import WeakKeyDictionary

import numpy as np
import torch

from molgcn.data.encodings import with_encodings
from molgcn.data.merge_leaves import merge_leaves
from molgcn.data.packed import PackedMolecules
from molgcn.errors import UserError

_without_bonds: WeakKeyDictionary[PackedMolecules, PackedMolecules] = WeakKeyDictionary()


@dataclass(frozen=True)
class BatchLayout:
    """How batches are laid out for a model.

    Attributes:
        tile_nodes: node places of a tile, T; None is 64, or 128 where a molecule needs it.
        merge_leaves: whether equal leaves are one row (:func:`molgcn.data.merge_leaves.merge_leaves`); not together with
            `bonds`, `rwse` or `bond_rw`.
        join_single: whether a single molecule left over at the end of a training epoch joins the batch before.
        bonds: whether batches hold the features of bonds.
        rwse: steps of the random walks by which batches encode each atom (:mod:`molgcn.data.encodings`); 0 for none.
        bond_rw: steps of the random walks by which batches encode each bond; 0 for none.
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
    """How a model chooses the :class:`BatchLayout` of a set."""

    def __call__(
        self, molecules: PackedMolecules, typical: np.ndarray, device: torch.device, precision: str, *, can_merge: bool
    ) -> BatchLayout:
        """Return the layout of the set's batches.

        Args:
            molecules: the set.
            typical: int [B], the molecules of a typical batch.
            device: where the model runs.
            precision: the Trainer's, such as "32-true".
            can_merge: whether the loader can give batches whose equal leaves are one row.
        """
        ...


def lay_out(molecules: PackedMolecules, layout: BatchLayout) -> PackedMolecules:
    """Return the set as its batches are to be, with what the layout asks for and nothing else; made once and kept as long as `molecules`.

    Raises:
        UserError: where the layout asks for features of bonds that the set does not have.
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
