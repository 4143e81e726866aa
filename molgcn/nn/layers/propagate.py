"""What atoms gather along the bonds that point at them: the pieces of which the layers' formulas are made.

Every shape follows from the arguments' shapes, never from their values, so that a layer can be captured in a CUDA graph and exported.
All functions can be differentiated twice. An atom that no bond points at gets 0, as in PyG.
"""

from __future__ import annotations

import torch
from torch import Tensor


def sum_incoming(messages: Tensor, target: Tensor, num_atoms: int) -> Tensor:
    """Return each atom's sum of the messages [E, ...] along the bonds that end at it: [N, ...]."""
    return messages.new_zeros(num_atoms, *messages.shape[1:]).index_add_(0, target, messages)


def mean_incoming(messages: Tensor, target: Tensor, num_atoms: int) -> Tensor:
    """Return each atom's mean of the messages [E, H] along the bonds that end at it: [N, H]."""
    count = sum_incoming(torch.ones_like(target, dtype=messages.dtype), target, num_atoms)
    return sum_incoming(messages, target, num_atoms) / count.clamp(min=1)[:, None]


def max_incoming(messages: Tensor, target: Tensor, num_atoms: int) -> Tensor:
    """Return each atom's largest message [E, H] along the bonds that end at it, channel by channel: [N, H].

    Equally large messages share the gradient in equal parts, as they do in PyG without `torch_scatter`.
    """
    place = target[:, None].expand_as(messages)
    return messages.new_zeros(num_atoms, messages.shape[1]).scatter_reduce(0, place, messages, "amax", include_self=False)


def softmax_incoming(scores: Tensor, target: Tensor, num_atoms: int) -> Tensor:
    """Return the softmax of the scores [E, K] over the bonds that end at the same atom; a score of -inf takes no part.

    Every atom needs at least one finite score.
    """
    highest = max_incoming(scores.detach(), target, num_atoms)
    weights = (scores - highest.index_select(0, target)).exp()
    return weights / sum_incoming(weights, target, num_atoms).index_select(0, target)
