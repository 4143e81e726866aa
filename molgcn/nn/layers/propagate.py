"""Reductions over the bonds that end at each atom, and the reverse of each bond, from which the layers are built.

Every shape follows from the arguments' shapes, never from their values, so that a layer can be captured in a CUDA graph and exported.
All reductions can be differentiated twice. An atom that no bond ends at gets 0, as in PyG.
"""

from __future__ import annotations

import torch
from torch import Tensor


def sum_incoming(messages: Tensor, target: Tensor, num_atoms: int) -> Tensor:
    """Return the sum [N, ...] of the messages [E, ...] along the bonds that end at each atom.

    Args:
        messages: The message along each bond, floating point [E, ...].
        target: The atom at which each bond ends, int64 [E].
        num_atoms: The number of atoms, N.
    """
    return messages.new_zeros(num_atoms, *messages.shape[1:]).index_add_(0, target, messages)


def mean_incoming(messages: Tensor, target: Tensor, num_atoms: int) -> Tensor:
    """Return the mean [N, H] of the messages [E, H] along the bonds that end at each atom.

    Args:
        messages: The message along each bond, floating point [E, H].
        target: The atom at which each bond ends, int64 [E].
        num_atoms: The number of atoms, N.
    """
    count = sum_incoming(torch.ones_like(target, dtype=messages.dtype), target, num_atoms)
    return sum_incoming(messages, target, num_atoms) / count.clamp(min=1)[:, None]


def max_incoming(messages: Tensor, target: Tensor, num_atoms: int) -> Tensor:
    """Return the maximum [N, H], channel by channel, of the messages [E, H] along the bonds that end at each atom.

    Equally large messages share the gradient equally, as in PyG without `torch_scatter`.

    Args:
        messages: The message along each bond, floating point [E, H].
        target: The atom at which each bond ends, int64 [E].
        num_atoms: The number of atoms, N.
    """
    place = target[:, None].expand_as(messages)
    return messages.new_zeros(num_atoms, messages.shape[1]).scatter_reduce(0, place, messages, "amax", include_self=False)


def softmax_incoming(scores: Tensor, target: Tensor, num_atoms: int) -> Tensor:
    r"""Return the softmax [E, K] of the scores over the bonds that end at the same atom.

    .. math::
        \alpha_{ek} = \exp(s_{ek}) \,/ \sum_{f: t_f = t_e} \exp(s_{fk})

    A bond with a score of -inf gets weight 0. Every atom at which bonds end needs at least one finite score.

    Args:
        scores: The scores s, floating point [E, K]. The result has their dtype.
        target: The atom t at which each bond ends, int64 [E].
        num_atoms: The number of atoms.
    """
    highest = max_incoming(scores.detach(), target, num_atoms)
    weights = (scores - highest.index_select(0, target)).exp()
    return weights / sum_incoming(weights, target, num_atoms).index_select(0, target)


def reverse_bonds(edge_index: Tensor, num_atoms: int) -> Tensor:
    """Return the position of every bond's reverse, a permutation that is its own inverse.

    The r-th bond from v to w pairs with the r-th bond from w to v, so that duplicates pair by rank and a self-loop is its own reverse.

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
