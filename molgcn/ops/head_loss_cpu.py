"""`molgcn::head_loss` on the CPU, by the C++ extension `molgcn._cpu`. Import this module to register it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

import molgcn._cpu as _cpu
from molgcn.ops.head_loss import LOSSES, Outputs, check, check_backward, empty_gradients, empty_outputs, number_of

_CLASSES = {torch.float32: _cpu.HeadLossFloat32, torch.float64: _cpu.HeadLossFloat64}


class BoundHead:
    """The operator bound to a head's parameters, to run it on many batches. The parameters are contiguous and only change in place.

    Args:
        weights: The head's weights; see :func:`molgcn.ops.head_loss.head_loss`.
        biases: The head's biases; see :func:`molgcn.ops.head_loss.head_loss`.
        mean: The targets' means; see :class:`molgcn.ops.head_loss.Objective`.
        std: The targets' standard deviations; see :class:`molgcn.ops.head_loss.Objective`.
        loss: The name of the loss.
        delta: The difference at which "huber" changes from square to linear.
    """

    def __init__(self, weights: Sequence[Tensor], biases: Sequence[Tensor], mean: Tensor, std: Tensor, loss: str, delta: float) -> None:
        self._keep = weights, biases, mean, std  # C++ has their addresses
        widths = [weights[0].shape[1] if weights else mean.shape[-1], *(weight.shape[0] for weight in weights)]
        addresses = [tensor.data_ptr() for tensor in weights], [tensor.data_ptr() for tensor in biases]
        self._bound = _CLASSES[mean.dtype](widths, number_of(loss), delta, *addresses, mean.data_ptr(), std.data_ptr())

    def forward(self, x: Tensor, target: Tensor, outputs: Outputs) -> None:
        """Compute the operator's outputs. All tensors are contiguous."""
        value, sums, derivatives, hidden = outputs
        self._bound.forward(x.shape[0], [tensor.data_ptr() for tensor in (x, target, hidden, derivatives, sums, value)])

    def backward(self, grad_loss: Tensor, x: Tensor, outputs: Outputs, gradients: tuple[Tensor, list[Tensor], list[Tensor]]) -> None:
        """Compute the gradients of x, weights and biases from the outputs of :meth:`forward`. All tensors are contiguous."""
        value, sums, derivatives, hidden = outputs
        batch = [tensor.data_ptr() for tensor in (x, x, hidden, derivatives, sums, value)]  # targets are not read
        grad_x, grad_weights, grad_biases = gradients
        addresses = [tensor.data_ptr() for tensor in grad_weights], [tensor.data_ptr() for tensor in grad_biases]
        self._bound.backward(x.shape[0], batch, grad_loss.data_ptr(), grad_x.data_ptr(), *addresses)


def forward(
    x: Tensor, weights: list[Tensor], biases: list[Tensor], target: Tensor, mean: Tensor, std: Tensor, loss: str, delta: float
) -> Outputs:
    """Compute the operator's outputs; see :mod:`molgcn.ops.head_loss`."""
    check(x, weights, biases, target, mean, std, tuple(_CLASSES))
    outputs = empty_outputs(x, weights)
    weights, biases = ([tensor.contiguous() for tensor in tensors] for tensors in (weights, biases))
    bound = BoundHead(weights, biases, mean.contiguous(), std.contiguous(), loss, delta)
    bound.forward(x.contiguous(), target.contiguous(), outputs)
    return outputs


def backward(
    grad_loss: Tensor, sums: Tensor, derivatives: Tensor, hidden: Tensor, x: Tensor, weights: list[Tensor]
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Compute the gradients; see :mod:`molgcn.ops.head_loss`."""
    check_backward(grad_loss, sums, derivatives, hidden, x, weights, tuple(_CLASSES))
    weights = [weight.contiguous() for weight in weights]
    gradients = empty_gradients(grad_loss, sums, derivatives, hidden, x, weights)
    bound = BoundHead(weights, [], derivatives, derivatives, LOSSES[0], 1.0)  # backward does not read biases, mean, std and the loss
    outputs = (grad_loss, sums.contiguous(), derivatives.contiguous(), hidden.contiguous())
    bound.backward(grad_loss, x.contiguous(), outputs, gradients)
    return gradients


torch.library.impl("molgcn::head_loss", "CPU", forward)
torch.library.impl("molgcn::head_loss_backward", "CPU", backward)
