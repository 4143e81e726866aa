"""The head, from the states of molecules to their targets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from torch import nn

from molgcn.nn.hooks import has_hooks


def build_head(in_channels: int, hidden: Sequence[int], out_channels: int, activation: Callable[[], nn.Module] = nn.ReLU) -> nn.Module:
    """Return linear maps with an activation between them.

    Args:
        in_channels: width that comes in.
        hidden: widths of the hidden layers; without any the head is one `Linear`.
        out_channels: targets.
        activation: makes the activation.
    """
    layers: list[nn.Module] = []
    for wide, narrow in pairwise([in_channels, *hidden]):
        layers += [nn.Linear(wide, narrow), activation()]
    last = nn.Linear(hidden[-1] if hidden else in_channels, out_channels)
    return nn.Sequential(*layers, last) if layers else last


def linears_of(head: nn.Module) -> list[nn.Linear] | None:
    """Return the head's linear maps, where it is nothing but these, with biases, and relu between them; hooks would not be called."""
    parts: list[Any] = list(head) if isinstance(head, nn.Sequential) else [head]
    alternate = all(type(part) is (nn.ReLU if place % 2 else nn.Linear) for place, part in enumerate(parts)) and len(parts) % 2 == 1
    hooked = any(map(has_hooks, [head, *parts]))
    return parts[::2] if alternate and not hooked and all(part.bias is not None for part in parts[::2]) else None
