r"""`molgcn::head_loss`: a head of linear layers, or none, and the loss of its predictions.

Each device registers an implementation of `molgcn::head_loss` and `molgcn::head_loss_backward`: :mod:`molgcn.ops.head_loss_cpu` and
:mod:`molgcn.ops.head_loss_cuda`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from molgcn.ops.expect import expect, expect_countable
from molgcn.ops.fake import register_fake
from molgcn.ops.masked_mean import masked_mean
from molgcn.ops.operator import below_autograd, is_eager
from molgcn.ops.precision import without_bfloat16

LOSSES = ("mse", "l1", "huber")

torch.library.define(
    "molgcn::head_loss",
    "(Tensor x, Tensor[] weights, Tensor[] biases, Tensor target, Tensor mean, Tensor std, str loss, float delta) "
    "-> (Tensor loss, Tensor sums, Tensor derivatives, Tensor hidden)",
    tags=(torch.Tag.pt2_compliant_tag,),
)
torch.library.define(
    "molgcn::head_loss_backward",
    "(Tensor grad_loss, Tensor sums, Tensor derivatives, Tensor hidden, Tensor x, Tensor[] weights) "
    "-> (Tensor grad_x, Tensor[] grad_weights, Tensor[] grad_biases)",
    tags=(torch.Tag.pt2_compliant_tag,),
)

Outputs = tuple[Tensor, Tensor, Tensor, Tensor]  # loss, sums, derivatives, hidden


class Objective(NamedTuple):
    r"""The targets and the loss of predictions p: the mean of :math:`\ell(p, (t - \mu) / \sigma)` over the known targets.

    Attributes:
        target: The targets :math:`t` [B, T]; NaN means missing.
        mean: The targets' means :math:`\mu` [T].
        std: The targets' standard deviations :math:`\sigma` [T].
        loss: The loss :math:`\ell`: "mse", "l1" or "huber" (Huber, 1964).
        delta: The difference at which "huber" changes from square to linear.
    """

    target: Tensor
    mean: Tensor
    std: Tensor
    loss: str
    delta: float = 1.0


def head_loss(x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], objective: Objective) -> tuple[Tensor, Tensor]:
    r"""Return the loss of the predictions :math:`h_k W_k^T + b_k`, where :math:`h_{i+1} = \mathrm{relu}(h_i W_i^T + b_i)`.

    All tensors have the same dtype: float32, or on the CPU float64.

    Args:
        x: The input of the head, :math:`h_0` [B, H]. Without weights, these are the predictions.
        weights: The k + 1 weights. The first is [H_1, H] and the last [T, H_k]. Empty without a head.
        biases: The k + 1 biases [H_i]. The last is [T]. Empty without a head.
        objective: The targets and the loss; see :class:`Objective`.

    Returns:
        - loss: The scalar loss, 0 if no target is known. It is differentiable once in `x`, `weights` and `biases`.
        - sums: The sum and the number of the terms, float64 [2].

    Raises:
        ValueError: If tensors do not fit together.
    """
    arguments = (x, list(weights), list(biases), *objective)
    calls = _DIRECT.get(x.device.type) if is_eager((x, *weights, *biases, *objective[:3])) else None
    value, sums, _, _ = torch.ops.molgcn.head_loss(*arguments) if calls is None else _differentiable(calls, *arguments)
    return value, sums


def head_loss_reference(x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], objective: Objective) -> tuple[Tensor, Tensor]:
    """Return what :func:`head_loss` returns, computed by plain PyTorch on any device and in any dtype."""
    for index, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        x = F.linear(x.relu() if index else x, weight, bias)
    terms, known, _ = loss_terms(x, objective)
    return masked_mean(terms, known)


def loss_terms(outputs: Tensor, objective: Objective) -> tuple[Tensor, Tensor, Tensor]:
    """Return each target's loss, whether it is known, and its standardised value, all [B, T], given predictions [B, T]."""
    target, mean, std, loss, delta = objective
    known = ~torch.isnan(target)
    target = torch.where(known, (target - mean) / std, outputs.detach())
    if loss == "huber":
        terms = F.huber_loss(outputs, target, reduction="none", delta=delta)
    else:
        terms = (F.mse_loss if loss == "mse" else F.l1_loss)(outputs, target, reduction="none")
    return terms, known, target


def loss_of(outputs: Tensor, objective: Objective, fused: bool) -> tuple[Tensor, Tensor]:
    """Return the loss of predictions [B, T] and the sums of :func:`head_loss`.

    With `fused`, float32 predictions on CUDA take the operator. All others take plain PyTorch.
    """
    outputs = without_bfloat16(outputs)
    takes = fused and outputs.is_cuda and outputs.dtype == torch.float32
    return (head_loss if takes else head_loss_reference)(outputs, [], [], objective)


def number_of(loss: str) -> int:
    """Return the number that kernels identify a loss by.

    Raises:
        ValueError: If the loss is unknown. The message names the known ones.
    """
    if loss not in LOSSES:
        raise ValueError(f"loss={loss} is unknown. Expected one of {', '.join(LOSSES)}.")
    return LOSSES.index(loss)


def check(
    x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], target: Tensor, mean: Tensor, std: Tensor, dtypes: Sequence[torch.dtype]
) -> None:
    """Check the arguments of the forward pass, since kernels read them by address.

    Args:
        x: The input of the head; see :func:`head_loss`.
        weights: The head's weights; see :func:`head_loss`.
        biases: The head's biases; see :func:`head_loss`.
        target: The targets; see :class:`Objective`.
        mean: The targets' means; see :class:`Objective`.
        std: The targets' standard deviations; see :class:`Objective`.
        dtypes: The dtypes that the device computes in.

    Raises:
        ValueError: If an argument does not fit. The message names it, or all shapes.
    """
    _check_dtype(x, dtypes)
    names = [f"{name}[{index}]" for name, tensors in (("weights", weights), ("biases", biases)) for index in range(len(tensors))]
    others = dict(zip([*names, "target", "mean", "std"], [*weights, *biases, target, mean, std], strict=True))
    for name, tensor in others.items():
        if tensor.dtype != x.dtype or tensor.device != x.device:
            raise ValueError(f"head_loss: expected {name} in {x.dtype} on {x.device}, got {tensor.dtype} on {tensor.device}")
    width, fits = x.shape[-1], x.dim() == target.dim() == 2 and len(weights) == len(biases)
    for weight, bias in zip(weights, biases, strict=False):
        fits = fits and weight.dim() == 2 and weight.shape[1] == width and bias.shape == (weight.shape[0],)
        width = weight.shape[0]
    if not fits or target.shape != (x.shape[0], width) or mean.shape != (width,) or std.shape != (width,):
        shapes = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in {"x": x, **others}.items())
        raise ValueError(f"head_loss: tensors do not fit together: {shapes}")
    expect_countable("head_loss", *target.shape)


def check_backward(
    grad_loss: Tensor,
    sums: Tensor,
    derivatives: Tensor,
    hidden: Tensor,
    x: Tensor,
    weights: Sequence[Tensor],
    dtypes: Sequence[torch.dtype],
) -> None:
    """Check the arguments of the backward pass. `sums`, `derivatives` and `hidden` are outputs of the forward pass.

    Raises:
        ValueError: If an argument does not fit. The message names the first one.
    """
    _check_dtype(x, dtypes)
    width, num_hidden = x.shape[1], 0
    for index, weight in enumerate(weights):
        num_hidden += width if index else 0
        expect("head_loss", f"weights[{index}]", weight, (weight.shape[0] if weight.dim() else 0, width), x)
        width = weight.shape[0]
    check_kept(grad_loss, sums, derivatives, (x.shape[0], width), x)
    expect("head_loss", "hidden", hidden, (x.shape[0] * num_hidden,), x)


def check_kept(grad_loss: Tensor, sums: Tensor, derivatives: Tensor, shape: tuple[int, int], like: Tensor) -> None:
    """Check the tensors of a loss that backward passes read.

    Args:
        grad_loss: The gradient of the loss, a scalar.
        sums: The sum and the number of the terms, float64 [2].
        derivatives: The derivative of each term.
        shape: The shape of the targets, [B, T].
        like: A tensor with the dtype and device that they must have.

    Raises:
        ValueError: If an argument does not fit. The message names the first one.
    """
    expect("head_loss", "grad_loss", grad_loss, (), like)
    expect("head_loss", "sums", sums, (2,), like, torch.double)
    expect("head_loss", "derivatives", derivatives, shape, like)


def _check_dtype(x: Tensor, dtypes: Sequence[torch.dtype]) -> None:
    if x.dim() != 2 or x.dtype not in dtypes:
        names = " or ".join(map(str, dtypes))
        raise ValueError(f"head_loss: expected x of shape [B, H] in {names} on {x.device}, got {list(x.shape)} in {x.dtype}")


@register_fake("molgcn::head_loss")
def empty_outputs(x: Tensor, weights: Sequence[Tensor], *_: Any) -> Outputs:
    """Return uninitialised loss, sums, derivatives and hidden.

    `hidden` has the outputs of all linear layers but the last, one after another.
    """
    num_targets = weights[-1].shape[0] if weights else x.shape[1]
    hidden = x.shape[0] * sum(weight.shape[0] for weight in weights[:-1])
    return x.new_empty(()), x.new_empty(2, dtype=torch.double), x.new_empty(x.shape[0], num_targets), x.new_empty(hidden)


@register_fake("molgcn::head_loss_backward")
def empty_gradients(
    grad_loss: Tensor, sums: Tensor, derivatives: Tensor, hidden: Tensor, x: Tensor, weights: Sequence[Tensor]
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Return uninitialised gradients of x, weights and biases."""
    of_weights, of_biases = (
        [weight.new_empty(weight.shape) for weight in weights],
        [weight.new_empty(weight.shape[0]) for weight in weights],
    )
    return x.new_empty(x.shape), of_weights, of_biases


class _Calls(NamedTuple):
    """The operator and its backward as functions, with the arguments of their schemas."""

    forward: Callable[..., Outputs]
    backward: Callable[..., tuple[Tensor, list[Tensor], list[Tensor]]]


_DIRECT: dict[str, _Calls] = {}


def implement(device_type: str, forward: Callable[..., Outputs], backward: Callable[..., Any]) -> None:
    """Declare a device's implementations of the operator and its backward, to which eager calls on plain tensors go straight.

    Args:
        device_type: The type of device, such as "cuda".
        forward: Takes the operator's arguments.
        backward: Takes the arguments of the operator's backward.
    """
    torch.library.impl("molgcn::head_loss", device_type.upper(), forward)
    torch.library.impl("molgcn::head_loss_backward", device_type.upper(), backward)
    _DIRECT[device_type] = _Calls(forward, backward)


class _HeadLoss(torch.autograd.Function):
    """The autograd function of the operator. `torch.library.register_autograd` does the same, but spends 0.2 ms on lists of tensors."""

    @staticmethod
    def forward(ctx: Any, calls: _Calls, constants: tuple, x: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
        half = len(parameters) // 2
        outputs = calls.forward(x, list(parameters[:half]), list(parameters[half:]), *constants)
        ctx.mark_non_differentiable(*outputs[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*outputs[1:], x, *parameters[:half])
        ctx.backward_call = calls.backward
        return outputs

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor | None, *_: Any) -> tuple:
        sums, derivatives, hidden, x, *weights = ctx.saved_tensors
        if grad_loss is None:
            return (None,) * (3 + 2 * len(weights))
        # create_graph=True: a second derivative must raise an error, which the operator does
        backward = torch.ops.molgcn.head_loss_backward.default if torch.is_grad_enabled() else ctx.backward_call
        grad_x, grad_weights, grad_biases = backward(grad_loss, sums, derivatives, hidden, x, weights)
        return None, None, grad_x, *grad_weights, *grad_biases


def _differentiable(calls: _Calls, x: Tensor, weights: list[Tensor], biases: list[Tensor], *constants: Any) -> tuple[Tensor, ...]:
    if len(weights) != len(biases):  # in the flat list of parameters they could not be told apart
        check(x, weights, biases, constants[0], constants[1], constants[2], (x.dtype,))
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (x, *weights, *biases)):
        return _HeadLoss.apply(calls, constants, x, *weights, *biases)
    return calls.forward(x, weights, biases, *constants)


_BELOW = _Calls(below_autograd(torch.ops.molgcn.head_loss.default), below_autograd(torch.ops.molgcn.head_loss_backward.default))


def _autograd(*args: Any) -> tuple[Tensor, ...]:
    return _differentiable(_BELOW, *args)


def _no_second_order(ctx: Any, *grads: Any) -> tuple:
    raise RuntimeError("head_loss has no second derivative; use backend=pyg to differentiate twice")


torch.library.impl("molgcn::head_loss", "Autograd", _autograd)
torch.library.register_autograd("molgcn::head_loss_backward", _no_second_order)
