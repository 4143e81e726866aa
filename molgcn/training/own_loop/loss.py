"""The loss of a captured step in a user's loop, and whether a function reads values of tensors on the host, which no CUDA graph can."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from molgcn.data.batch import GraphBatch
from molgcn.data.slot_batch import SlotBatch
from molgcn.errors import UserError
from molgcn.nn.molecule_net import MoleculeNet
from molgcn.nn.padding import first_rows
from molgcn.ops.head_loss import LOSSES, Objective, loss_of

Function = Callable[[Tensor, Tensor], Tensor]
_TAGS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_NAMES = {"_local_scalar_dense": "item()", "index": "an index of booleans", "copy_": "cpu()", "_to_copy": "cpu()"}


class LoopLoss:
    """Computes the loss that :func:`molgcn.capture` was given, one of :data:`molgcn.ops.head_loss.LOSSES` or a function."""

    def __init__(self, loss: str | Function) -> None:
        if isinstance(loss, str) and loss not in LOSSES:
            raise UserError(f"loss={loss!r} is unknown. Expected {', '.join(map(repr, LOSSES))}, or a function of predictions and targets.")
        if not isinstance(loss, str) and not callable(loss):
            raise UserError(f"loss={loss!r} is neither a name nor a function. Expected loss(predictions, targets) that returns a tensor.")
        self._name = loss if isinstance(loss, str) else None
        self._function: Function | None = None if isinstance(loss, str) else loss
        # the operation by which the function reads values on the host, in words; None where it does not, or was not called yet
        self.reads_back: str | None = None
        # whether the function returns one or several terms for each molecule; None before its first call
        self.one_per_molecule: bool | None = None
        self._scale: dict[tuple[Any, ...], tuple[Tensor, Tensor]] = {}

    @property
    def any_number(self) -> bool:
        """Whether the loss of a padded batch is that of its real molecules, so that one graph takes any number of molecules."""
        return self._name is not None or self.one_per_molecule is True

    @property
    def tensors(self) -> Sequence[Tensor]:
        """The tensors of a loss that is a module."""
        loss = self._function
        return [*loss.parameters(), *loss.buffers()] if isinstance(loss, nn.Module) else ()

    def static_form(self, batch: SlotBatch) -> GraphBatch:
        """Return the slot of a batch in its full shape if the loss takes any number of molecules, else in that of the batch's number."""
        return batch.slot.padded if self.any_number else batch.slot.padded_to(batch.num_graphs)

    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        """Return the loss of a model's predictions for a batch, a scalar.

        Raises:
            UserError: for a batch without targets, or a function that returns neither a scalar nor a row per molecule.
        """
        targets = _targets(batch)
        if self._function is not None:
            return self._of_function(self._function, model(batch), targets, batch)
        targets = targets.to(next(model.parameters()).dtype)
        assert self._name is not None
        objective = Objective(targets, *self._no_scale(targets), self._name)
        if is_network(model):
            return model.loss(batch, objective)[0]
        return loss_of(model(batch), objective, fused=False)[0]

    def _no_scale(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the means 0 and standard deviations 1 of targets [B, T], which are made once."""
        key = targets.shape[1], targets.dtype, targets.device
        if key not in self._scale:
            self._scale[key] = targets.new_zeros(targets.shape[1]), targets.new_ones(targets.shape[1])
        return self._scale[key]

    def _of_function(self, function: Function, predictions: Tensor, targets: Tensor, batch: Any) -> Tensor:
        if self.one_per_molecule is None:
            with ReadsBack() as mode:
                value = self._checked(function(predictions, targets), predictions)
            self.reads_back, self.one_per_molecule = mode.found, value.dim() > 0
            return value.mean()
        counts = getattr(batch, "counts", None)
        if counts is None or not self.one_per_molecule:
            return self._checked(function(predictions, targets), predictions).mean()
        real = first_rows(predictions, counts[0])  # the rows of no molecule become copies of a real one, whose terms do not count
        predictions = torch.where(_like(real, predictions), predictions, predictions[:1].detach())
        targets = torch.where(_like(real, targets), targets, targets[:1])
        terms = self._checked(function(predictions, targets), predictions)
        return torch.where(_like(real, terms), terms, 0).sum() / (counts[0] * terms[:1].numel())

    def _checked(self, value: Any, predictions: Tensor) -> Tensor:
        if not isinstance(value, Tensor) or (value.dim() > 0 and len(value) != len(predictions)):
            found = f"a tensor of shape {list(value.shape)}" if isinstance(value, Tensor) else f"{type(value).__name__}"
            raise UserError(
                f"The loss function returned {found} for predictions of shape {list(predictions.shape)}. Expected a scalar, or one row for "
                "each molecule, whose mean is taken."
            )
        return value


def is_network(model: nn.Module) -> TypeGuard[MoleculeNet]:
    """Return whether a module is one of this project's networks, with its forward pass."""
    return isinstance(model, MoleculeNet) and type(model).forward is MoleculeNet.forward


def _like(real: Tensor, tensor: Tensor) -> Tensor:
    """Return a mask of rows [B] in a shape that fits a tensor [B, ...]."""
    return real.view(-1, *[1] * (tensor.dim() - 1))


def _targets(batch: Any) -> Tensor:
    """Return the targets [B, T] of a :class:`GraphBatch` or of PyG's `Batch`."""
    targets = batch.targets if isinstance(batch, GraphBatch) else getattr(batch, "y", None)
    if targets is not None and not isinstance(batch, GraphBatch):
        targets = targets.reshape(getattr(batch, "num_graphs", 1), -1)
    if targets is None or targets.shape[1] == 0:
        raise UserError("The batch has no targets, but the step computes a loss. Give PyG's Data a `y`, or the packed set `targets`.")
    return targets


class ReadsBack(TorchDispatchMode):
    """Notes the first operation inside a `with` block that needs values of tensors on the host, in this thread only."""

    def __init__(self) -> None:
        super().__init__()
        self.found: str | None = None  # the operation, in words; None where there was none

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if self.found is None and _reads(func, args, result):
            name = func.overloadpacket.__name__
            self.found = _NAMES.get(name, f"{name}()")
        return result


def _reads(func: Any, args: tuple[Any, ...], result: Any) -> bool:
    if func is torch.ops.aten.index.Tensor:
        return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])
    if _TAGS.intersection(func.tags):
        return True
    tensors = [one for one in args if isinstance(one, Tensor)]
    return isinstance(result, Tensor) and result.device.type == "cpu" and any(one.is_cuda for one in tensors)
