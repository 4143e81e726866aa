"""Philox 4x32-10 in PyTorch's integers: which activations the operators' dropout keeps, on every device and for any number of threads.

Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

import torch
from torch import Tensor

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_MASK = 0xFFFFFFFF


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor | int, Tensor | int]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Ten rounds on four 32-bit words held in int64 tensors."""
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


def keep_mask(seed: Tensor, layer: int, num_nodes: int, channels: int, dropout: float) -> Tensor:
    """Return which activations dropout keeps, bool [num_nodes, channels].

    It keeps those where word channel % 4 of counter (atom, channel // 4, layer, 0) under key `seed` is at least dropout * 2^32.
    """
    blocks = (channels + 3) // 4
    atom = torch.arange(num_nodes, device=seed.device)[:, None].expand(num_nodes, blocks)
    block = torch.arange(blocks, device=seed.device).expand(num_nodes, blocks)
    words = philox((atom, block, torch.full_like(atom, layer), torch.zeros_like(atom)), (seed & _MASK, (seed >> 32) & _MASK))
    return torch.stack(words, dim=-1).reshape(num_nodes, 4 * blocks)[:, :channels] >= int(dropout * 2**32)


def dropout_seed(device: torch.device, dropout: float) -> Tensor:
    """Key of the dropout's numbers, from torch's generator; drawn on the device, so that a captured step draws anew on every replay."""
    if dropout == 0.0:
        return torch.empty(1, dtype=torch.int64, device=device)  # never read
    return torch.randint(-(2**63), 2**63 - 1, (1,), device=device)
