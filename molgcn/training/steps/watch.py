"""What steps that are prepared once rely on: nobody listens within one, and nothing has changed between two."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.nn.modules import module as modules_of_torch
from torch.optim import Optimizer
from torch.optim import optimizer as optimizers_of_torch
from torch.utils.hooks import RemovableHandle

from molgcn.nn.hooks import has_hooks

if TYPE_CHECKING:
    from molgcn.nn.molecule_net import MoleculeNet

WITHIN_STEP = ("on_before_backward", "on_after_backward", "on_before_optimizer_step", "on_before_zero_grad")


def overridden(one: object, base: type, names: Iterable[str]) -> str | None:
    """Return the first of these methods that an object does not have from its base class, as "Class.method"; None without one."""
    for name in names:
        if name in vars(one) or getattr(type(one), name) is not getattr(base, name):
            return f"{type(one).__name__}.{name}"
    return None


def _optimizer_has_hooks(optimizer: Optimizer) -> bool:
    """Whether somebody listens to an optimiser's steps."""
    return bool(
        optimizer._optimizer_step_pre_hooks
        or optimizer._optimizer_step_post_hooks
        or optimizers_of_torch._global_optimizer_pre_hooks
        or optimizers_of_torch._global_optimizer_post_hooks
    )


class Watch:
    """Looks at all of a model that may change between two steps, in the few microseconds that a step leaves for it.

    Args:
        model: its layers are those of now; :meth:`is_of` says whether they still are.
        optimizer: of its weights, if it learns.
    """

    def __init__(self, model: MoleculeNet, optimizer: Optimizer | None = None) -> None:
        self.model = model
        self.optimizer = optimizer
        self.parameters = list(model.parameters())
        self._modules = list(model.modules())
        self._norms = [module for module in self._modules if isinstance(module, nn.BatchNorm1d | nn.LayerNorm)]
        self._tensors = [*self.parameters, *model.buffers()]
        self._handles = -1
        self._hooked = False

    def is_of(self, model: MoleculeNet) -> bool:
        """Whether these are the layers and weights of a model; looking takes longer than the rest."""
        parts = [*model.modules(), *model.parameters(), *model.buffers()]
        mine = [*self._modules, *self._tensors]
        return len(mine) == len(parts) and all(one is other for one, other in zip(mine, parts, strict=True))

    def has_hooks(self) -> bool:
        """Whether there are hooks on layers, weights or the optimiser."""
        if self._hooked or self._handles != RemovableHandle.next_id:  # which counts all hooks of a process
            self._handles = RemovableHandle.next_id
            self._hooked = (
                any(parameter._backward_hooks or parameter._post_accumulate_grad_hooks for parameter in self.parameters)
                or any(map(has_hooks, self._modules))
                or bool(modules_of_torch._has_any_global_hook())
                or (self.optimizer is not None and _optimizer_has_hooks(self.optimizer))
            )
        return self._hooked

    def state(self, others: Iterable[Tensor] = ()) -> list[Any]:
        """Where weights and statistics lie, what learns, and the options: two are equal where nothing has changed but values.

        Args:
            others: tensors whose places count too.
        """
        model = self.model
        norms = [(norm.eps, getattr(norm, "momentum", None)) for norm in self._norms]
        options = model.dropout, model.pool, model.residual, model.last_activation, tuple(model.settings.items())
        return [
            [tensor.data_ptr() for tensor in (*self._tensors, *others)],
            [parameter.requires_grad for parameter in self.parameters],
            [part.training for part in self._modules],
            norms,
            options,
        ]
