"""Find out whether a module has hooks."""

from __future__ import annotations

from typing import Any


def has_hooks(module: Any) -> bool:
    return bool(module._forward_pre_hooks or module._forward_hooks or module._backward_hooks or module._backward_pre_hooks)
