"""The head and the loss of a direct step, which come between the network's forward and its backward."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from molgcn.ops.head_loss import empty_outputs
from molgcn.ops.head_loss_cpu import BoundHead
from molgcn.tasks.losses import MaskedLoss

if TYPE_CHECKING:
    from molgcn.training.module import MoleculeModule


Head = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Computes the loss, and writes the gradients of the head's parameters.

It takes pooled features and descriptors [B, H], contiguous, and labels [B, L], or with more rows, which are not read; NaN where missing. It
returns the gradient of the pooled features [B, H], and the sum and number of the loss's terms, float64 [2].
"""


class OperatorHead:
    """Computes a head of linear layers and a :class:`MaskedLoss` by the operator `molgcn::head_loss`; see :func:`head_of`."""

    def __init__(
        self, module: MoleculeModule, gradients: Mapping[Tensor, Tensor], statistics: Sequence[Tensor], are_transformed: bool
    ) -> None:
        linears = module.model.linears
        assert linears is not None
        self._weights, biases = ([getattr(linear, name) for linear in linears] for name in ("weight", "bias"))
        self._targets_of = module.for_loss if are_transformed else None
        options = *statistics, *module.loss.options
        self._bound = BoundHead([weight.detach() for weight in self._weights], [bias.detach() for bias in biases], *options)
        self._gradients = [gradients[weight] for weight in self._weights], [gradients[bias] for bias in biases]
        self._one, self._gradient = torch.ones(()), torch.empty(0, 0)

    def __call__(self, pooled: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """See :data:`Head`."""
        if pooled.shape != self._gradient.shape:
            self._gradient, self._outputs = torch.empty_like(pooled), empty_outputs(pooled, self._weights)
        if self._targets_of is not None:
            targets = self._targets_of(targets[: len(pooled)])[0].contiguous()
        self._bound.forward(pooled, targets, self._outputs)
        self._bound.backward(self._one, pooled, self._outputs, (self._gradient, *self._gradients))
        return self._gradient, self._outputs[1]


class AutogradHead:
    """Computes any head and any loss by PyTorch's autograd, from the pooled features on; see :func:`head_of`."""

    def __init__(self, module: MoleculeModule, gradients: Mapping[Tensor, Tensor]) -> None:
        self._module = module
        self._parameters = list(module.model.head.parameters())
        self._gradients = [gradients[parameter] for parameter in self._parameters]

    def __call__(self, pooled: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """See :data:`Head`."""
        module, pooled = self._module, pooled.requires_grad_()
        loss, sums = module.loss(module.model.head(pooled), *module.for_loss(targets[: len(pooled)]))
        gradient, *of_parameters = torch.autograd.grad(loss, [pooled, *self._parameters])
        torch._foreach_copy_(self._gradients, of_parameters)
        return gradient.contiguous(), sums


def head_of(module: MoleculeModule, gradients: Mapping[Tensor, Tensor], targets: Tensor) -> Head:
    """Return the fastest implementation for a module's head and loss, given a batch's labels.

    It writes the gradients of the head's parameters into `gradients`, which has those of each of the model's parameters.
    """
    taken, *statistics = module.for_loss(targets)
    if isinstance(module.loss, MaskedLoss) and len(statistics) == 2:  # no target is weighted or a bound
        return OperatorHead(module, gradients, statistics, are_transformed=taken is not targets)
    return AutogradHead(module, gradients)
