"""Make gradients those of the mean loss over the labels of several batches, on one device or several."""

from __future__ import annotations

from itertools import accumulate

import torch
from torch import Tensor, nn

_ALIGNMENT = 16  # bytes, which kernels read at once


class MeanGradients:
    """Makes gradients those of the mean loss over all known labels of a step of one or several batches, as if one batch had them all.

    Batches may differ in how many labels they have, so their mean losses must not be averaged. Backward passes add up gradients of sums
    instead, and :meth:`divide` divides these by the number of terms before the optimiser's step. Several processes add up their gradients
    and their numbers of terms first, in one tensor and one operation. With them go the running statistics of batch norms in training, which
    become the mean of all processes, so that these have the same state after each step.

    Args:
        accumulates: whether a step may have several batches.
        world_size: number of processes.
    """

    def __init__(self, accumulates: bool = False, world_size: int = 1) -> None:
        self._several = accumulates or world_size > 1
        self._world_size = world_size
        self._one: Tensor | None = None
        self._flat: FlatTensors | None = None

    def weight(self, loss: Tensor, sums: Tensor) -> Tensor:
        """Return the gradient with which a backward pass begins, from a batch's mean loss, and the sum and number of terms, float64 [2]."""
        if self._one is None:
            self._one, self._num_terms = torch.ones_like(loss), torch.zeros_like(sums[1])
        if not self._several:
            return self._one
        self._num_terms += sums[1]
        return sums[1].to(loss.dtype)

    @torch.no_grad()
    def divide(self, model: nn.Module) -> None:
        """Divide the gradients of a step by the number of its terms; every process has to call this."""
        if not self._several:
            return
        learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
        gradients = [parameter.grad for parameter in learning if parameter.grad is not None]
        if self._world_size > 1:
            gradients = [self._added_up(model, learning)]
        num_terms = self._num_terms.clamp(min=1).to(gradients[0].dtype)
        self._num_terms.zero_()
        torch._foreach_div_(gradients, num_terms)

    def _added_up(self, model: nn.Module, learning: list[nn.Parameter]) -> Tensor:
        """Replace gradients and the number of terms by their sums over all processes, and statistics by their means.

        The gradients are views of the tensor that is returned.

        A weight that no output of this process's batch depends on has a gradient of 0.
        """
        statistics = _statistics(model)
        held = [*learning, *statistics, self._num_terms]
        if self._flat is None or not self._flat.fits(held):
            self._flat = FlatTensors(held)
        *places, num_terms = self._flat.views
        gradients, of_statistics = places[: len(learning)], places[len(learning) :]
        copied = list(zip(of_statistics, statistics, strict=True))
        for parameter, place in zip(learning, gradients, strict=True):
            if parameter.grad is None:
                place.zero_()
            else:
                copied.append((place, parameter.grad))
        if copied:
            torch._foreach_copy_([place for place, _ in copied], [tensor for _, tensor in copied])
        num_terms.copy_(self._num_terms)
        torch.distributed.all_reduce(self._flat.tensor)
        self._num_terms.copy_(num_terms)
        for parameter, place in zip(learning, gradients, strict=True):
            parameter.grad = place
        if statistics:
            torch._foreach_copy_(statistics, of_statistics)
            torch._foreach_div_(statistics, self._world_size)
        return self._flat.first(len(learning))


class FlatTensors:
    """One tensor with room for several.

    Args:
        tensors: the tensors, whose shapes the views have; all are on one device, and the first decides the dtype.
    """

    def __init__(self, tensors: list[Tensor]) -> None:
        self._shapes = [tensor.shape for tensor in tensors]
        self._of = tensors[0].dtype, tensors[0].device
        step = _ALIGNMENT // tensors[0].element_size()
        sizes = [-(-tensor.numel() // step) * step for tensor in tensors]
        self._starts = list(accumulate(sizes, initial=0))
        self.tensor = torch.zeros(self._starts[-1], dtype=tensors[0].dtype, device=tensors[0].device)  # [N]; `views` are the room for each
        self.views = [
            self.tensor[start : start + tensor.numel()].view(tensor.shape) for start, tensor in zip(self._starts, tensors, strict=False)
        ]

    def first(self, count: int) -> Tensor:
        """Return the room for the first tensors as one."""
        return self.tensor[: self._starts[count]]

    def fits(self, tensors: list[Tensor]) -> bool:
        """Return whether this is the room for tensors of these shapes."""
        return self._shapes == [tensor.shape for tensor in tensors] and self._of == (tensors[0].dtype, tensors[0].device)


def _statistics(model: nn.Module) -> list[Tensor]:
    """Return the running means and variances that training changes."""
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training]
    found = [statistic for norm in norms for statistic in (norm.running_mean, norm.running_var)]
    return [statistic for statistic in found if statistic is not None]
