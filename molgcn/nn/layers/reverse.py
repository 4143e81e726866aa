"""Find the reverse of every directed bond."""

from __future__ import annotations

import torch
from torch import Tensor


def reverse_bonds(edge_index: Tensor, num_atoms: int) -> Tensor:
    """Return the position of every bond's reverse, a permutation that is its own inverse.

    The r-th bond from v to w pairs with the r-th bond from w to v, so that duplicates pair by rank and a self-loop is its own reverse.
    Shapes are static and nothing waits for the device.

    Args:
        edge_index: int64 [2, E], source and target of every bond, in any order. There must be as many bonds from w to v as from v to w;
            otherwise the result has no meaning.
        num_atoms: number of atoms N, at most 2^31.

    Returns:
        Positions, int64 [E].
    """
    source, target = edge_index[0], edge_index[1]
    bonds = (source * num_atoms + target).argsort(stable=True)
    reverses = (target * num_atoms + source).argsort(stable=True)
    return torch.empty_like(bonds).scatter(0, bonds, reverses)
