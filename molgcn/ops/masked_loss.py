r"""`molgcn::masked_loss`: the training loss over targets that are not missing, one launch forward and one backward on CUDA."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from molgcn.cuda_runtime.launch import kernel
from molgcn.cuda_runtime.structs import Header, fill
from molgcn.ops.expect import expect

LOSSES = ("mse", "l1", "huber")
_THREADS = 1024

torch.library.define(
    "molgcn::masked_loss",
    "(Tensor prediction, Tensor target, Tensor mean, Tensor std, str loss, float delta) -> (Tensor loss, Tensor sums)",
    tags=(torch.Tag.pt2_compliant_tag,),
)
torch.library.define(
    "molgcn::masked_loss_backward",
    "(Tensor grad_loss, Tensor sums, Tensor prediction, Tensor target, Tensor mean, Tensor std, str loss, float delta) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)


def masked_loss(prediction: Tensor, target: Tensor, mean: Tensor, std: Tensor, loss: str, delta: float = 1.0) -> tuple[Tensor, Tensor]:
    r"""The mean of :math:`\ell(p - (t - \mu) / \sigma)` over the targets that are known.

    Args:
        prediction: float32 [B, T], standardised.
        target: float32 [B, T], NaN = missing.
        mean: float32 [T], :math:`\mu`.
        std: float32 [T], :math:`\sigma`.
        loss: "mse", "l1" or "huber" (Huber, 1964).
        delta: where huber turns from square to linear.

    Returns:
        - loss: float32, 0 where nothing is known; differentiable in `prediction`, once
        - sums: float64 [2], sum and number of the terms
    """
    return torch.ops.molgcn.masked_loss(prediction, target, mean, std, loss, delta)


def masked_loss_reference(
    prediction: Tensor, target: Tensor, mean: Tensor, std: Tensor, loss: str, delta: float = 1.0
) -> tuple[Tensor, Tensor]:
    """:func:`masked_loss` in PyTorch's operators, for any device and dtype."""
    known = ~torch.isnan(target)
    target = torch.where(known, (target - mean) / std, prediction.detach())
    if loss == "huber":
        terms = F.huber_loss(prediction, target, reduction="none", delta=delta)
    else:
        terms = (F.mse_loss if loss == "mse" else F.l1_loss)(prediction, target, reduction="none")
    total, count = torch.where(known, terms, 0.0).sum(), known.sum()
    return total / count.clamp(min=1), torch.stack((total.detach().double(), count.double()))


def number_of(loss: str) -> int:
    """The number by which kernels know a loss.

    Raises:
        ValueError: naming those that there are.
    """
    if loss not in LOSSES:
        raise ValueError(f"loss={loss} is unknown. Expected one of {', '.join(LOSSES)}.")
    return LOSSES.index(loss)


_HEADER = Header(
    "masked_loss_structs.h",
    Parameters=[
        ("const float*", "prediction target"),  # [count]
        ("const float*", "mean std"),  # [num_targets]
        ("float*", "loss"),  # the mean over known targets, 0 without any
        ("double*", "sums"),  # [2]: sum and number of terms
        ("const float*", "grad_loss"),
        ("float*", "grad_prediction"),  # [count]
        ("int", "count num_targets"),
        ("float", "delta"),
    ],
)


def _parameters(delta: float, **tensors: Tensor) -> ctypes.Structure:
    count, num_targets = tensors["prediction"].numel(), tensors["prediction"].shape[1]
    return fill(_HEADER.ctype()(count=count, num_targets=num_targets, delta=delta), tensors)


def _contiguous(**tensors: Tensor) -> dict[str, Tensor]:
    prediction = tensors["prediction"]
    for name, tensor in tensors.items():
        if tensor.dtype != torch.float32 or tensor.device != prediction.device:
            raise ValueError(f"masked_loss: expected {name} in float32 on {prediction.device}, got {tensor.dtype} on {tensor.device}")
    if prediction.shape != tensors["target"].shape or prediction.dim() != 2:
        raise ValueError(f"masked_loss: prediction {list(prediction.shape)} and target {list(tensors['target'].shape)} differ in shape")
    for name in ("mean", "std"):
        if tensors[name].shape != prediction.shape[1:]:
            raise ValueError(f"masked_loss: expected {name} of shape [{prediction.shape[1]}], got {list(tensors[name].shape)}")
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def _forward(prediction: Tensor, target: Tensor, mean: Tensor, std: Tensor, loss: str, delta: float) -> tuple[Tensor, Tensor]:
    value, sums = _empty(prediction)
    inputs = _contiguous(prediction=prediction, target=target, mean=mean, std=std)
    function = kernel("masked_loss.cu", "masked_loss_forward", {"LOSS": number_of(loss)}, prediction.device)
    function.launch(1, _THREADS, 16 * _THREADS, _parameters(delta, loss=value, sums=sums, **inputs))
    return value, sums


@torch.library.register_fake("molgcn::masked_loss")
def _fake(prediction: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
    return _empty(prediction)


def _empty(prediction: Tensor) -> tuple[Tensor, Tensor]:
    return prediction.new_empty(()), prediction.new_empty(2, dtype=torch.double)


def _backward(
    grad_loss: Tensor, sums: Tensor, prediction: Tensor, target: Tensor, mean: Tensor, std: Tensor, loss: str, delta: float
) -> Tensor:
    expect("masked_loss", "grad_loss", grad_loss, (), prediction)
    expect("masked_loss", "sums", sums, (2,), prediction, torch.double)
    gradient = torch.empty_like(prediction, memory_format=torch.contiguous_format)
    if gradient.numel():
        inputs = _contiguous(prediction=prediction, target=target, mean=mean, std=std)
        function = kernel("masked_loss.cu", "masked_loss_backward", {"LOSS": number_of(loss)}, prediction.device)
        blocks = min(-(-prediction.numel() // 256), 4096)
        function.launch(blocks, 256, 0, _parameters(delta, grad_loss=grad_loss, sums=sums, grad_prediction=gradient, **inputs))
    return gradient


@torch.library.register_fake("molgcn::masked_loss_backward")
def _backward_fake(grad_loss: Tensor, sums: Tensor, prediction: Tensor, *args: Any) -> Tensor:
    return torch.empty_like(prediction, memory_format=torch.contiguous_format)


def _setup_context(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.loss, ctx.delta = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(output[1], *tensors)


def _autograd(ctx: Any, grad_loss: Tensor | None, _: Any) -> tuple:
    if grad_loss is None:
        return (None,) * 6
    gradient = torch.ops.molgcn.masked_loss_backward(grad_loss, *ctx.saved_tensors, ctx.loss, ctx.delta)
    return gradient, None, None, None, None, None


def _no_second_order(ctx: Any, *grads: Any) -> tuple:
    raise RuntimeError("masked_loss has no second derivative; use backend=pyg to differentiate twice")


torch.library.register_autograd("molgcn::masked_loss_backward", _no_second_order)
torch.library.register_autograd("molgcn::masked_loss", _autograd, setup_context=_setup_context)
torch.library.impl("molgcn::masked_loss", "CUDA", _forward)
torch.library.impl("molgcn::masked_loss_backward", "CUDA", _backward)
