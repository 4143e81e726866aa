"""Check what prepared steps rely on: no hook is to be called within a step, and nothing has changed between two."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.nn.modules import module as modules_of_torch
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.optim import Optimizer
from torch.optim import optimizer as optimizers_of_torch
from torch.utils.hooks import RemovableHandle

from molgcn.nn.hooks import has_hooks

if TYPE_CHECKING:
    from molgcn.nn.molecule_net import MoleculeNet

_LEARNS, _MODE = attrgetter("requires_grad"), itemgetter("training")
_OPTIONS = ("dropout", "pool", "residual", "last_activation", "strategy", "recompute")
WITHIN_STEP = ("on_before_backward", "on_after_backward", "on_before_optimizer_step", "on_before_zero_grad")


_registrations = 0  # of parameters, buffers and layers in modules of this process, so that nobody has to look for them at every step


def _note(module: Any, name: str, value: Any) -> None:
    global _registrations
    _registrations += 1


register_module_parameter_registration_hook(_note)
register_module_buffer_registration_hook(_note)
register_module_module_registration_hook(_note)


def overridden(one: object, base: type, names: Iterable[str]) -> str | None:
    """Return the first of these methods that an object overrides, as "Class.method"; None where it has all from its base class."""
    for name in names:
        if name in vars(one) or getattr(type(one), name) is not getattr(base, name):
            return f"{type(one).__name__}.{name}"
    return None


def _optimizer_has_hooks(optimizer: Optimizer) -> bool:
    """Return whether there are hooks on an optimiser's steps."""
    return bool(
        optimizer._optimizer_step_pre_hooks
        or optimizer._optimizer_step_post_hooks
        or optimizers_of_torch._global_optimizer_pre_hooks
        or optimizers_of_torch._global_optimizer_post_hooks
    )


class Watch:
    """Tells what may have changed in a model, and in the optimiser of its weights, between two steps, within a few microseconds.

    The layers are listed once; :meth:`is_of` and :meth:`is_still_of` say whether they still are the model's.
    """

    def __init__(self, model: MoleculeNet, optimizer: Optimizer | None = None) -> None:
        self.model = model
        self.optimizer = optimizer
        self.parameters = list(model.parameters())
        self._modules = list(model.modules())
        self._norms = [module for module in self._modules if isinstance(module, nn.BatchNorm1d | nn.LayerNorm)]
        self._buffers = list(model.buffers())
        # Moving a model gives it new buffers, which nobody is told; views show them.
        held = (module._buffers.values() for module in self._modules if module._buffers)
        self._held: list[Iterable[Any]] = [buffers for buffers in held if all(one is not None for one in buffers)]
        self._fields = [module.__dict__ for module in self._modules]
        self._registrations = _registrations
        self._handles = -1
        self._hooked = False

    def is_of(self, model: MoleculeNet) -> bool:
        """Return whether the layers and weights are still those of a model; this takes longer than the other checks."""
        parts = [*model.modules(), *model.parameters(), *model.buffers()]
        mine = [*self._modules, *self.parameters, *self._buffers]
        return len(mine) == len(parts) and all(one is other for one, other in zip(mine, parts, strict=True))

    def is_still_of(self, model: MoleculeNet) -> bool:
        """Return what :meth:`is_of` does, at once where no module of the process was given anything since the last call."""
        if self._registrations == (now := _registrations):
            return model is self.model
        self._registrations = now if (whole := self.is_of(model)) else -1
        return whole

    def has_hooks(self) -> bool:
        """Return whether there are hooks on layers, weights or the optimiser."""
        if self._hooked or self._handles != RemovableHandle.next_id:  # counts all hooks that the process has made
            self._handles = RemovableHandle.next_id
            self._hooked = (
                any(parameter._backward_hooks or parameter._post_accumulate_grad_hooks for parameter in self.parameters)
                or any(map(has_hooks, self._modules))
                or bool(modules_of_torch._has_any_global_hook())
                or (self.optimizer is not None and _optimizer_has_hooks(self.optimizer))
            )
        return self._hooked

    def state(self, others: Iterable[Tensor] = ()) -> list[Any]:
        """Return where weights, statistics and `others` lie, what learns, and the options; two are equal where only values have changed."""
        model = self.model
        norms = [(norm.eps, getattr(norm, "momentum", None)) for norm in self._norms]
        options = [getattr(model, name) for name in _OPTIONS], tuple(model.settings.items())
        return [
            list(map(Tensor.data_ptr, chain(self.parameters, *self._held, others))),
            list(map(_LEARNS, self.parameters)),
            list(map(_MODE, self._fields)),
            norms,
            options,
        ]
