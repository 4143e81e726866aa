"""The layout of batches: what a model wishes and the data module obeys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from molgcn.data.packed import PackedMolecules


@dataclass(frozen=True)
class BatchLayout:
    """How batches are laid out for a model.

    Attributes:
        tile_nodes: node places of a tile, T; None is 64, or 128 where a molecule needs it.
        merge_leaves: whether equal leaves are one row (:func:`molgcn.data.merge_leaves.merge_leaves`).
        join_single: whether a single molecule left over at the end of a training epoch joins the batch before.
        bonds: whether batches hold the features of bonds.
        rwse: return probabilities of random walks a batch holds of each atom, k; 0 for none.
        bond_rw: probabilities of random walks a batch holds of each bond, k; 0 for none.
    """

    tile_nodes: int | None = None
    merge_leaves: bool = False
    join_single: bool = False
    bonds: bool = False
    rwse: int = 0
    bond_rw: int = 0


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
