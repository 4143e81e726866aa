"""Detect the function transforms that the fused operators do not support: torch.func and forward-mode differentiation."""

from __future__ import annotations

import torch
from torch.autograd import forward_ad


def transformed() -> bool:
    """Return whether a transform of torch.func or forward-mode differentiation is active. Both support only PyTorch's operations."""
    if torch.compiler.is_compiling():
        return False
    return torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0


def refuse_transforms() -> None:
    """Check that no transform of torch.func and no forward-mode differentiation is active.

    Raises:
        NotImplementedError: If one is active.
    """
    if transformed():
        raise NotImplementedError(
            "backend=fused does not support transforms of torch.func or forward-mode differentiation: its layers are one operator with a "
            "reverse-mode derivative only. Use backend=pyg, whose layers are PyTorch's own operations."
        )
