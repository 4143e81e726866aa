"""Philox 4x32-10 in PyTorch's integers, which decides what the operators' dropout keeps on every device and for any number of threads.

Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

import torch
from torch import Tensor

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_MASK = 0xFFFFFFFF


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor | int, Tensor | int]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the counter after ten rounds of Philox.

    Args:
        counter: Four 32-bit words in int64 tensors.
        key: Two 32-bit words, in int64 tensors or as numbers.

    Returns:
        Four random 32-bit words in int64 tensors.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        high0, low0 = _multiply(c0, _MULTIPLIERS[0])
        high1, low1 = _multiply(c2, _MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return c0, c1, c2, c3


def _multiply(a: Tensor, b: int) -> tuple[Tensor, Tensor]:
    low, high = (a & 0xFFFF) * b, (a >> 16) * b  # 48 bits each, so that int64 does not overflow
    middle = (low >> 16) + high
    return middle >> 16, ((middle & 0xFFFF) << 16) | (low & 0xFFFF)


def keep_mask(seed: Tensor, layer: int, num_nodes: int, channels: int, dropout: float, kind: int = 0) -> Tensor:
    """Return which activations dropout keeps, bool [num_nodes, channels].

    The counter is (atom, channel // 4, layer, kind) and the key is `seed`. An activation is kept if word channel % 4 of the random words is
    at least dropout * 2^32.

    Args:
        seed: The key, int64 [1].
        layer: The number of the layer, or of the dropout in the network.
        num_nodes: The number of atoms.
        channels: The number of channels.
        dropout: The probability that an activation is dropped.
        kind: A number that gives rows of several kinds different random numbers.
    """
    blocks = (channels + 3) // 4
    atom = torch.arange(num_nodes, device=seed.device)[:, None].expand(num_nodes, blocks)
    block = torch.arange(blocks, device=seed.device).expand(num_nodes, blocks)
    words = philox((atom, block, torch.full_like(atom, layer), torch.full_like(atom, kind)), (seed & _MASK, (seed >> 32) & _MASK))
    return torch.stack(words, dim=-1).reshape(num_nodes, 4 * blocks)[:, :channels] >= int(dropout * 2**32)


def dropout_seed(device: torch.device, drops: bool = True) -> Tensor:
    """Return the key of dropout's random numbers, int64 [1], drawn from PyTorch's generator. Without `drops` it may be anything.

    It is drawn on the device, so that every replay of a captured CUDA graph draws a new one.
    """
    if not drops:
        return torch.empty(1, dtype=torch.int64, device=device)  # never read
    return torch.randint(-(2**63), 2**63 - 1, (1,), device=device)
