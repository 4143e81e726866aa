"""Transforms of functions that operators of our own have no rules for."""

from __future__ import annotations

import torch
from torch.autograd import forward_ad


def transformed() -> bool:
    """Whether torch.func or forward-mode differentiation is at work, which go through PyTorch's own operations only."""
    if torch.compiler.is_compiling():
        return False
    return torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0


def refuse_transforms() -> None:
    """Raise NotImplementedError where torch.func or forward-mode differentiation is at work."""
    if transformed():
        raise NotImplementedError(
            "backend=fused has no rule for transforms of torch.func or forward-mode derivatives: its layers are one operator with a "
            "derivative in reverse. Use backend=pyg, whose layers are PyTorch's own operations."
        )
