r"""`molgcn::linear_loss`: a linear map and the loss of its predictions, one or two launches forward and one backward on CUDA."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from molgcn.cuda_runtime.launch import Kernel, kernel
from molgcn.cuda_runtime.structs import Header, fill
from molgcn.ops.expect import expect
from molgcn.ops.masked_loss import masked_loss_reference, number_of

_THREADS, _COLUMNS = 512, 4
_TARGETS = 8  # summed at a time where there are several
_ONE_BLOCK = 512  # molecules that one block takes faster than two launches
_MAX_BLOCKS = 1024

torch.library.define(
    "molgcn::linear_loss",
    "(Tensor x, Tensor weight, Tensor bias, Tensor target, Tensor mean, Tensor std, str loss, float delta) "
    "-> (Tensor loss, Tensor sums, Tensor slopes)",
    tags=(torch.Tag.pt2_compliant_tag,),
)
torch.library.define(
    "molgcn::linear_loss_backward",
    "(Tensor grad_loss, Tensor sums, Tensor slopes, Tensor x, Tensor weight) -> (Tensor grad_x, Tensor grad_weight, Tensor grad_bias)",
    tags=(torch.Tag.pt2_compliant_tag,),
)


def linear_loss(
    x: Tensor, weight: Tensor, bias: Tensor, target: Tensor, mean: Tensor, std: Tensor, loss: str, delta: float = 1.0
) -> tuple[Tensor, Tensor]:
    r""":func:`molgcn.ops.masked_loss.masked_loss` of the predictions :math:`x W^T + b`.

    Args:
        x: float32 [B, H].
        weight: float32 [T, H], :math:`W`.
        bias: float32 [T], :math:`b`.
        target: float32 [B, T], NaN = missing.
        mean: float32 [T].
        std: float32 [T].
        loss: "mse", "l1" or "huber".
        delta: where huber turns from square to linear.

    Returns:
        - loss: float32, 0 where nothing is known; differentiable in `x`, `weight` and `bias`, once
        - sums: float64 [2], sum and number of the terms
    """
    value, sums, _ = torch.ops.molgcn.linear_loss(x, weight, bias, target, mean, std, loss, delta)
    return value, sums


def linear_loss_reference(
    x: Tensor, weight: Tensor, bias: Tensor, target: Tensor, mean: Tensor, std: Tensor, loss: str, delta: float = 1.0
) -> tuple[Tensor, Tensor]:
    """:func:`linear_loss` in PyTorch's operators, for any device and dtype."""
    return masked_loss_reference(F.linear(x, weight, bias), target, mean, std, loss, delta)


_HEADER = Header(
    "linear_loss_structs.h",
    Parameters=[
        ("const float*", "x weight bias"),  # [num_graphs, width], [num_targets, width], [num_targets]
        ("const float*", "target mean std"),  # [num_graphs, num_targets], [num_targets]
        ("float*", "slopes"),  # [num_graphs, num_targets]: derivative of each term, 0 where the target is missing
        ("double*", "partial"),  # [blocks, 2]: sum and number of each block's terms
        ("double*", "sums"),  # [2]
        ("float*", "loss"),  # the mean over known targets, 0 without any
        ("const float*", "grad_loss"),
        ("float*", "grad_x grad_weight grad_bias"),
        ("int", "num_graphs width num_targets num_partial kind"),  # kind: of loss
        ("float", "delta"),
    ],
)


def _parameters(tensors: dict[str, Tensor], **values: float) -> ctypes.Structure:
    num_targets, width = tensors["weight"].shape
    return fill(_HEADER.ctype()(num_graphs=tensors["x"].shape[0], width=width, num_targets=num_targets, **values), tensors)


def source(num_targets: int) -> tuple[str, dict[str, int]]:
    """The kernels' file and macros."""
    return "linear_loss.cu", {"TARGETS": 1 if num_targets == 1 else _TARGETS}


def _kernel(name: str, weight: Tensor) -> Kernel:
    file, defines = source(weight.shape[0])
    return kernel(file, name, defines, weight.device)


def check(x: Tensor, weight: Tensor, **others: Tensor) -> None:
    """A look at shapes, dtypes and devices; the others are `target` and vectors of T.

    Raises:
        ValueError: naming what does not fit.
    """
    for name, tensor in {"x": x, "weight": weight, **others}.items():
        if tensor.dtype != torch.float32 or tensor.device != x.device:
            raise ValueError(f"linear_loss: expected {name} in float32 on {x.device}, got {tensor.dtype} on {tensor.device}")
    expected = (x.shape[0], weight.shape[0]) if x.dim() == weight.dim() == 2 and x.shape[1] == weight.shape[1] else None
    if others["target"].shape != expected:
        shapes = [list(tensor.shape) for tensor in (x, weight, others["target"])]
        raise ValueError("linear_loss: x {}, weight {} and target {} do not fit together".format(*shapes))
    for name, tensor in others.items():
        if name != "target" and tensor.shape != weight.shape[:1]:
            raise ValueError(f"linear_loss: expected {name} of shape [{weight.shape[0]}], got {list(tensor.shape)}")


def _forward(
    x: Tensor, weight: Tensor, bias: Tensor, target: Tensor, mean: Tensor, std: Tensor, loss: str, delta: float
) -> tuple[Tensor, Tensor, Tensor]:
    check(x, weight, bias=bias, target=target, mean=mean, std=std)
    value, sums, slopes = empty_outputs(x, weight)
    count = x.shape[0]
    blocks = 1 if count <= _ONE_BLOCK else min(-(-count // 32), _MAX_BLOCKS)
    threads = _THREADS if blocks == 1 else 256
    partial = x.new_empty(2 * blocks, dtype=torch.double)
    inputs = {"x": x, "weight": weight, "bias": bias, "target": target, "mean": mean, "std": std}
    inputs = {name: tensor.contiguous() for name, tensor in inputs.items()}
    outputs = {"slopes": slopes, "partial": partial, "sums": sums, "loss": value}
    parameters = _parameters(inputs | outputs, num_partial=blocks, kind=number_of(loss), delta=delta)
    _kernel("linear_loss_forward", weight).launch(blocks, threads, 16 * threads, parameters, overlap=True)
    if blocks > 1:
        _kernel("linear_loss_sums", weight).launch(1, 256, 16 * 256, parameters, overlap=True)
    return value, sums, slopes


@torch.library.register_fake("molgcn::linear_loss")
def _fake(x: Tensor, weight: Tensor, *args: Any) -> tuple[Tensor, Tensor, Tensor]:
    return empty_outputs(x, weight)


def empty_outputs(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Uninitialised loss, sums and slopes."""
    return x.new_empty(()), x.new_empty(2, dtype=torch.double), x.new_empty(x.shape[0], weight.shape[0])


def check_backward(grad_loss: Tensor, sums: Tensor, slopes: Tensor, weight: Tensor, shape: tuple[int, int], like: Tensor) -> None:
    """Check what the backward pass reads of a batch of `shape` [B, H] beside x.

    Raises:
        ValueError: naming the first argument that does not fit.
    """
    num_graphs, width = shape
    num_targets = weight.shape[0] if weight.dim() == 2 else 0
    expect("linear_loss", "weight", weight, (num_targets, width), like, torch.float32)
    expect("linear_loss", "grad_loss", grad_loss, (), like, torch.float32)
    expect("linear_loss", "sums", sums, (2,), like, torch.double)
    expect("linear_loss", "slopes", slopes, (num_graphs, num_targets), like, torch.float32)


def _backward(grad_loss: Tensor, sums: Tensor, slopes: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    if x.dim() != 2 or x.dtype != torch.float32:
        raise ValueError(f"linear_loss: expected x of shape [B, H] in float32, got {list(x.shape)} in {x.dtype}")
    check_backward(grad_loss, sums, slopes, weight, (x.shape[0], x.shape[1]), x)
    x, weight, slopes = x.contiguous(), weight.contiguous(), slopes.contiguous()
    gradients = _empty_gradients(grad_loss, sums, slopes, x, weight)
    width, count = weight.shape[1], x.shape[0]
    blocks = _summing_blocks(weight) + min(-(-count * width // _THREADS), _MAX_BLOCKS)
    outputs = dict(zip(("grad_x", "grad_weight", "grad_bias"), gradients, strict=True))
    inputs = {"x": x, "weight": weight, "slopes": slopes, "sums": sums, "grad_loss": grad_loss}
    _kernel("linear_loss_backward", weight).launch(blocks, _THREADS, 4 * _THREADS, _parameters(inputs | outputs), overlap=True)
    return gradients


def _summing_blocks(weight: Tensor) -> int:
    """Blocks that sum the gradients of weight and bias."""
    num_targets, width = weight.shape
    return (width // _COLUMNS + 1) * -(-num_targets // _TARGETS)


def empty_head_sums(weight: Tensor) -> Tensor:
    """Uninitialised, what :func:`launch_ends` gives."""
    return weight.new_empty(weight.numel() + weight.shape[0])


def launch_ends(x: Tensor, weight: Tensor, slopes: Tensor, terms: Tensor, sums: Tensor, value: Tensor) -> Tensor:
    """One launch: sums and loss from parts of them, float64 [parts, 2].

    Returns:
        float32 [T H + T], sums over all molecules of slopes times `x` and of slopes
    """
    head_sums = empty_head_sums(weight)
    tensors = {"x": x, "weight": weight, "slopes": slopes, "partial": terms, "sums": sums, "loss": value}
    tensors |= {"grad_weight": head_sums, "grad_bias": head_sums[weight.numel() :]}
    blocks = _summing_blocks(weight) + 1
    _kernel("linear_loss_ends", weight).launch(blocks, _THREADS, 16 * _THREADS, _parameters(tensors, num_partial=len(terms)), overlap=True)
    return head_sums


@torch.library.register_fake("molgcn::linear_loss_backward")
def _empty_gradients(grad_loss: Tensor, sums: Tensor, slopes: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return x.new_empty(x.shape), weight.new_empty(weight.shape), weight.new_empty(weight.shape[0])


def _setup_context(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*output[1:], *inputs[:2])


def _autograd(ctx: Any, grad_loss: Tensor | None, *_: Any) -> tuple:
    if grad_loss is None:
        return (None,) * 8
    return *torch.ops.molgcn.linear_loss_backward(grad_loss, *ctx.saved_tensors), *(None,) * 5


def _no_second_order(ctx: Any, *grads: Any) -> tuple:
    raise RuntimeError("linear_loss has no second derivative; use backend=pyg to differentiate twice")


torch.library.register_autograd("molgcn::linear_loss", _autograd, setup_context=_setup_context)
torch.library.register_autograd("molgcn::linear_loss_backward", _no_second_order)
torch.library.impl("molgcn::linear_loss", "CUDA", _forward)
torch.library.impl("molgcn::linear_loss_backward", "CUDA", _backward)
