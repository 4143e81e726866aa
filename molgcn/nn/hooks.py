"""Who listens to a module."""

from __future__ import annotations

from typing import Any


def has_hooks(module: Any) -> bool:
    """Whether hooks are to be called at a module's forward or backward pass."""
    return bool(module._forward_pre_hooks or module._forward_hooks or module._backward_hooks or module._backward_pre_hooks)
