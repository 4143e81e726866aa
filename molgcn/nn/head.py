"""The head, which computes targets from the states of molecules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from torch import nn

from molgcn.errors import UserError, counted
from molgcn.nn.hooks import has_hooks


def build_head(in_channels: int, hidden: Sequence[int], out_channels: int, activation: Callable[[], nn.Module] = nn.ReLU) -> nn.Module:
    """Return linear maps of these widths with an activation between them; without hidden layers one `Linear`."""
    layers: list[nn.Module] = []
    for wide, narrow in pairwise([in_channels, *hidden]):
        layers += [nn.Linear(wide, narrow), activation()]
    last = nn.Linear(hidden[-1] if hidden else in_channels, out_channels)
    return nn.Sequential(*layers, last) if layers else last


def without_last_layers(head: nn.Module, layer: int) -> tuple[nn.Module, int]:
    """Return the first layers of a head of :func:`build_head`, up to a chosen hidden state, and the width of that state.

    Layer 0 is the input of the head, k the state after the k-th hidden layer and its activation, -1 the last hidden state.

    Raises:
        UserError: for a layer that the head does not have.
    """
    parts: list[Any] = list(head) if isinstance(head, nn.Sequential) else [head]
    hidden = len(parts) // 2
    if not -1 <= layer <= hidden:
        there = counted(hidden, "hidden layer")
        raise UserError(f"layer={layer} does not exist: the head has {there}. Expected 0 (before the head) to {hidden}, or -1.")
    place = 2 * (hidden if layer == -1 else layer)
    return nn.Sequential(*parts[:place]) if place else nn.Identity(), parts[place].in_features


def linears_of(head: nn.Module) -> list[nn.Linear] | None:
    """Return the linear maps of a head, if a fused operator can compute it; None otherwise.

    The head must consist of `Linear` modules with biases, with a `ReLU` between each two. None of its modules may have hooks, since the
    operator would not call them.
    """
    parts: list[Any] = list(head) if isinstance(head, nn.Sequential) else [head]
    alternate = all(type(part) is (nn.ReLU if place % 2 else nn.Linear) for place, part in enumerate(parts)) and len(parts) % 2 == 1
    hooked = any(map(has_hooks, [head, *parts]))
    return parts[::2] if alternate and not hooked and all(part.bias is not None for part in parts[::2]) else None
