"""Count the parameters, buffers and layers that modules of this process are given, so that nobody has to look for them at every step."""

from __future__ import annotations

from typing import Any

from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)

_given = 0


def _note(module: Any, name: str, value: Any) -> None:
    global _given
    _given += 1


register_module_parameter_registration_hook(_note)
register_module_buffer_registration_hook(_note)
register_module_module_registration_hook(_note)


def registrations() -> int:
    """Return how many there were since this module was imported."""
    return _given
