r"""`molgcn::head_loss` on the CPU: the head and the training loss of its predictions, by the C++ extension `molgcn._cpu`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

import molgcn._cpu as _cpu
from molgcn.ops.expect import expect
from molgcn.ops.masked_loss import LOSSES, masked_loss_reference, number_of

torch.library.define(
    "molgcn::head_loss",
    "(Tensor x, Tensor[] weights, Tensor[] biases, Tensor target, Tensor mean, Tensor std, str loss, float delta) "
    "-> (Tensor loss, Tensor sums, Tensor slopes, Tensor hidden)",
    tags=(torch.Tag.pt2_compliant_tag,),
)
torch.library.define(
    "molgcn::head_loss_backward",
    "(Tensor grad_loss, Tensor sums, Tensor slopes, Tensor hidden, Tensor x, Tensor[] weights) "
    "-> (Tensor grad_x, Tensor[] grad_weights, Tensor[] grad_biases)",
    tags=(torch.Tag.pt2_compliant_tag,),
)

Outputs = tuple[Tensor, Tensor, Tensor, Tensor]  # loss, sums, slopes, hidden
_CLASSES = {torch.float32: _cpu.HeadLossFloat32, torch.float64: _cpu.HeadLossFloat64}


def head_loss(
    x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], target: Tensor, mean: Tensor, std: Tensor, loss: str, delta: float = 1.0
) -> tuple[Tensor, Tensor]:
    r""":func:`molgcn.ops.masked_loss.masked_loss` of :math:`h_k W_k^T + b_k`, where :math:`h_{i+1} = \mathrm{relu}(h_i W_i^T + b_i)`.

    Everything is of one dtype, float32 or float64, on the CPU.

    Args:
        x: [B, H], :math:`h_0`.
        weights: k + 1 tensors, the first [H_1, H], the last [T, H_k].
        biases: k + 1 tensors [H_i], the last [T].
        target: [B, T], NaN = missing.
        mean: [T].
        std: [T].
        loss: "mse", "l1" or "huber".
        delta: where huber turns from square to linear.

    Returns:
        - loss: 0 where nothing is known; differentiable in `x`, `weights` and `biases`, once
        - sums: float64 [2], sum and number of the terms

    Raises:
        ValueError: for tensors that do not fit together.
    """
    value, sums, _, _ = torch.ops.molgcn.head_loss(x, list(weights), list(biases), target, mean, std, loss, delta)
    return value, sums


def head_loss_reference(
    x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], target: Tensor, mean: Tensor, std: Tensor, loss: str, delta: float = 1.0
) -> tuple[Tensor, Tensor]:
    """:func:`head_loss` in PyTorch's operators."""
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        x = F.linear(x, weight, bias).relu()
    return masked_loss_reference(F.linear(x, weights[-1], biases[-1]), target, mean, std, loss, delta)


class BoundHead:
    """The head's parameters as the operator reads them, for batch after batch: they change in place only, and are contiguous.

    Args:
        weights: as of :func:`head_loss`, likewise the others.
    """

    def __init__(self, weights: Sequence[Tensor], biases: Sequence[Tensor], mean: Tensor, std: Tensor, loss: str, delta: float) -> None:
        self._keep = weights, biases, mean, std  # C++ has their addresses
        self.dtype = mean.dtype
        self.widths = [weights[0].shape[1], *(weight.shape[0] for weight in weights)]
        addresses = [tensor.data_ptr() for tensor in weights], [tensor.data_ptr() for tensor in biases]
        self._bound = _CLASSES[self.dtype](self.widths, number_of(loss), delta, *addresses, mean.data_ptr(), std.data_ptr())

    def forward(self, x: Tensor, target: Tensor, outputs: Outputs) -> None:
        """Writes the operator's outputs; all contiguous."""
        value, sums, slopes, hidden = outputs
        self._bound.forward(x.shape[0], [tensor.data_ptr() for tensor in (x, target, hidden, slopes, sums, value)])

    def backward(self, grad_loss: Tensor, x: Tensor, outputs: Outputs, gradients: tuple[Tensor, list[Tensor], list[Tensor]]) -> None:
        """Writes the gradients of x, weights and biases from what :meth:`forward` wrote; all contiguous."""
        value, sums, slopes, hidden = outputs
        batch = [tensor.data_ptr() for tensor in (x, x, hidden, slopes, sums, value)]  # targets are not read
        grad_x, grad_weights, grad_biases = gradients
        addresses = [tensor.data_ptr() for tensor in grad_weights], [tensor.data_ptr() for tensor in grad_biases]
        self._bound.backward(x.shape[0], batch, grad_loss.data_ptr(), grad_x.data_ptr(), *addresses)


def _check(x: Tensor, weights: list[Tensor], biases: list[Tensor], target: Tensor, mean: Tensor, std: Tensor) -> None:
    for tensor in (x, *weights, *biases, target, mean, std):
        if tensor.dtype != x.dtype or tensor.device.type != "cpu" or x.dtype not in _CLASSES:
            raise ValueError(
                f"head_loss: expected float32 or float64 on the CPU throughout, got {x.dtype} and {tensor.dtype} on {tensor.device}"
            )
    width, fits = x.shape[-1], x.dim() == target.dim() == 2 and len(weights) == len(biases) > 0
    for weight, bias in zip(weights, biases, strict=False):
        fits = fits and weight.dim() == 2 and weight.shape[1] == width and bias.shape == (weight.shape[0],)
        width = weight.shape[0]
    if not fits or target.shape != (x.shape[0], width) or mean.shape != (width,) or std.shape != (width,):
        shapes = [list(tensor.shape) for tensor in (x, *weights, *biases, target, mean, std)]
        raise ValueError(f"head_loss: x, weights, biases, target, mean and std do not fit together: {shapes}")


def _check_backward(grad_loss: Tensor, sums: Tensor, slopes: Tensor, hidden: Tensor, x: Tensor, weights: list[Tensor]) -> None:
    if x.dim() != 2 or x.dtype not in _CLASSES or not weights:
        raise ValueError(f"head_loss: expected x of shape [B, H] in float32 or float64, got {list(x.shape)} in {x.dtype}")
    width, num_hidden = x.shape[1], 0
    for place, weight in enumerate(weights):
        expect("head_loss", f"weights[{place}]", weight, (weight.shape[0] if weight.dim() else 0, width), x)
        width = weight.shape[0]
        num_hidden += width
    expect("head_loss", "grad_loss", grad_loss, (), x)
    expect("head_loss", "sums", sums, (2,), x, torch.double)
    expect("head_loss", "slopes", slopes, (x.shape[0], width), x)
    expect("head_loss", "hidden", hidden, (x.shape[0] * (num_hidden - width),), x)


def empty_outputs(x: Tensor, weights: Sequence[Tensor]) -> Outputs:
    """Uninitialised loss, sums, slopes and hidden: the outputs of all linear maps but the last, one after the other."""
    hidden = x.shape[0] * sum(weight.shape[0] for weight in weights[:-1])
    return x.new_empty(()), x.new_empty(2, dtype=torch.double), x.new_empty(x.shape[0], weights[-1].shape[0]), x.new_empty(hidden)


@torch.library.register_fake("molgcn::head_loss")
def _fake(x: Tensor, weights: list[Tensor], *args: Any) -> Outputs:
    return empty_outputs(x, weights)


@torch.library.impl("molgcn::head_loss", "CPU")
def _forward(
    x: Tensor, weights: list[Tensor], biases: list[Tensor], target: Tensor, mean: Tensor, std: Tensor, loss: str, delta: float
) -> Outputs:
    _check(x, weights, biases, target, mean, std)
    outputs = empty_outputs(x, weights)
    weights, biases = ([tensor.contiguous() for tensor in tensors] for tensors in (weights, biases))
    bound = BoundHead(weights, biases, mean.contiguous(), std.contiguous(), loss, delta)
    bound.forward(x.contiguous(), target.contiguous(), outputs)
    return outputs


@torch.library.register_fake("molgcn::head_loss_backward")
def _empty_gradients(
    grad_loss: Tensor, sums: Tensor, slopes: Tensor, hidden: Tensor, x: Tensor, weights: list[Tensor]
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    return (
        x.new_empty(x.shape),
        [weight.new_empty(weight.shape) for weight in weights],
        [weight.new_empty(weight.shape[0]) for weight in weights],
    )


@torch.library.impl("molgcn::head_loss_backward", "CPU")
def _backward(
    grad_loss: Tensor, sums: Tensor, slopes: Tensor, hidden: Tensor, x: Tensor, weights: list[Tensor]
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    _check_backward(grad_loss, sums, slopes, hidden, x, weights)
    weights = [weight.contiguous() for weight in weights]
    gradients = _empty_gradients(grad_loss, sums, slopes, hidden, x, weights)
    bound = BoundHead(weights, [], x, x, LOSSES[0], 1.0)  # the rest is not read
    outputs = (grad_loss, sums.contiguous(), slopes.contiguous(), hidden.contiguous())
    bound.backward(grad_loss, x.contiguous(), outputs, gradients)
    return gradients


class _HeadLoss(torch.autograd.Function):
    """The operator's derivative; `torch.library.register_autograd` does the same, but spends 0.2 ms on lists of tensors."""

    @staticmethod
    def forward(ctx: Any, constants: tuple, x: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
        half = len(parameters) // 2
        with torch._C._AutoDispatchBelowAutograd():
            outputs = torch.ops.molgcn.head_loss.default(x, list(parameters[:half]), list(parameters[half:]), *constants)
        ctx.mark_non_differentiable(*outputs[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*outputs[1:], x, *parameters[:half])
        return outputs

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor | None, *_: Any) -> tuple:
        sums, slopes, hidden, x, *weights = ctx.saved_tensors
        if grad_loss is None:
            return (None,) * (2 + 2 * len(weights))
        arguments = (grad_loss, sums, slopes, hidden, x, weights)
        if torch.is_grad_enabled():  # create_graph: differentiating it again is an error
            grad_x, grad_weights, grad_biases = torch.ops.molgcn.head_loss_backward.default(*arguments)
        else:
            with torch._C._AutoDispatchBelowAutograd():
                grad_x, grad_weights, grad_biases = torch.ops.molgcn.head_loss_backward.default(*arguments)
        return None, grad_x, *grad_weights, *grad_biases


def _autograd(x: Tensor, weights: list[Tensor], biases: list[Tensor], *constants: Any) -> tuple[Tensor, ...]:
    if len(weights) != len(biases):  # cannot be told apart in a flat list
        _check(x, weights, biases, *constants[:3])
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (x, *weights, *biases)):
        return _HeadLoss.apply(constants, x, *weights, *biases)
    with torch._C._AutoDispatchBelowAutograd():
        return torch.ops.molgcn.head_loss.default(x, weights, biases, *constants)


def _no_second_order(ctx: Any, *grads: Any) -> tuple:
    raise RuntimeError("head_loss has no second derivative; use backend=pyg to differentiate twice")


torch.library.impl("molgcn::head_loss", "Autograd", _autograd)
torch.library.register_autograd("molgcn::head_loss_backward", _no_second_order)
