"""Find the hooks of modules, and run those that compute weights."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from molgcn.errors import UserError


def has_hooks(module: Any) -> bool:
    return bool(module._forward_pre_hooks or module._forward_hooks or module._backward_hooks or module._backward_pre_hooks)


def compute_weights(modules: Iterable[Any]) -> None:
    """Run the forward pre-hooks that compute weights: those of `torch.nn.utils.prune`, `weight_norm` and `spectral_norm`.

    Any other hook, which would never be called, is an error.
    """
    for module in modules:
        if not has_hooks(module):
            continue
        for hook in module._forward_pre_hooks.values():
            if not isinstance(hook, (BasePruningMethod, WeightNorm, SpectralNorm)):
                raise _uncalled_hook(module)
            hook(module, ())
        if module._forward_hooks or module._backward_hooks or module._backward_pre_hooks:
            raise _uncalled_hook(module)


def _uncalled_hook(module: nn.Module) -> UserError:
    return UserError(
        f"A hook on a layer's {type(module).__name__} would never be called: backend=fused runs all layers as one operator. Register it on "
        "the network, its head or a parameter, or use backend=pyg."
    )
