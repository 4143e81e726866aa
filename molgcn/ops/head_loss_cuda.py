"""`molgcn::head_loss` on CUDA with one linear layer or none, by `cuda/head_loss.cu`. Import this module to register it.

Forward takes one or two launches and backward one.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from molgcn.cuda_runtime.launch import Kernel, kernel
from molgcn.cuda_runtime.structs import Header, fill
from molgcn.ops.head_loss import Outputs, check, check_backward, empty_gradients, empty_outputs, number_of

THREADS = 512  # threads of a block with a linear layer
_PLAIN_THREADS = 1024  # threads of the only block without a linear layer
_COLUMNS = 4
_TARGETS = 8  # the number of targets that are summed at a time if there are several
_ONE_BLOCK = 512  # up to this many molecules, one block is faster than two launches
_MAX_BLOCKS = 1024
_DTYPES = (torch.float32,)

HEADER = Header(
    "head_loss_structs.h",
    Parameters=[
        ("const float*", "x weight bias"),  # [num_graphs, width], [num_targets, width], [num_targets]
        ("const float*", "target mean std"),  # [num_graphs, num_targets], [num_targets]
        ("float*", "slopes"),  # [num_graphs, num_targets]: derivative of each term, 0 where the target is missing
        ("double*", "partial"),  # [blocks, 2]: sum and number of each block's terms
        ("double*", "sums"),  # [2]
        ("float*", "loss"),  # the mean over known targets, 0 without any
        ("const float*", "grad_loss"),
        ("float*", "grad_x grad_weight grad_bias"),
        ("int", "num_graphs width num_targets num_partial kind"),  # kind: the number of the loss
        ("float", "delta"),
    ],
)


def source(num_targets: int) -> tuple[str, dict[str, int]]:
    """Return the kernels' source file and macros."""
    return "head_loss.cu", {"TARGETS": 1 if num_targets == 1 else _TARGETS}


def _kernel(name: str, x: Tensor, num_targets: int) -> Kernel:
    file, defines = source(num_targets)
    return kernel(file, name, defines, x.device)


def _parameters(tensors: dict[str, Tensor], num_targets: int, **values: float) -> ctypes.Structure:
    num_graphs, width = tensors["x"].shape
    return fill(HEADER.ctype()(num_graphs=num_graphs, width=width, num_targets=num_targets, **values), tensors)


def forward(
    x: Tensor, weights: list[Tensor], biases: list[Tensor], target: Tensor, mean: Tensor, std: Tensor, loss: str, delta: float
) -> Outputs:
    """Compute the operator's outputs; see :mod:`molgcn.ops.head_loss`."""
    check(x, weights, biases, target, mean, std, _DTYPES)
    _check_maps(weights)
    outputs = value, sums, slopes, _ = empty_outputs(x, weights)
    count, num_targets = slopes.shape
    blocks = 1 if not weights or count <= _ONE_BLOCK else min(-(-count // 32), _MAX_BLOCKS)
    threads = _PLAIN_THREADS if not weights else THREADS if blocks == 1 else 256
    inputs = {"x": x, "target": target, "mean": mean, "std": std}
    inputs |= {"weight": weights[0], "bias": biases[0]} if weights else {}
    tensors = {name: tensor.contiguous() for name, tensor in inputs.items()}
    tensors |= {"slopes": slopes, "partial": x.new_empty(2 * blocks, dtype=torch.double), "sums": sums, "loss": value}
    parameters = _parameters(tensors, num_targets, num_partial=blocks, kind=number_of(loss), delta=delta)
    name = "linear_loss_forward" if weights else "masked_loss_forward"
    _kernel(name, x, num_targets).launch(blocks, threads, 16 * threads, parameters, overlap=bool(weights))
    if blocks > 1:
        _kernel("linear_loss_sums", x, num_targets).launch(1, 256, 16 * 256, parameters, overlap=True)
    return outputs


def backward(
    grad_loss: Tensor, sums: Tensor, slopes: Tensor, hidden: Tensor, x: Tensor, weights: list[Tensor]
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Compute the gradients; see :mod:`molgcn.ops.head_loss`."""
    check_backward(grad_loss, sums, slopes, hidden, x, weights, _DTYPES)
    _check_maps(weights)
    gradients = grad_x, grad_weights, grad_biases = empty_gradients(grad_loss, sums, slopes, hidden, x, weights)
    count, num_targets = slopes.shape
    tensors = {"x": x.contiguous(), "slopes": slopes.contiguous(), "sums": sums, "grad_loss": grad_loss, "grad_x": grad_x}
    if not weights:
        blocks = max(1, min(-(-x.numel() // 256), 4096))
        _kernel("masked_loss_backward", x, num_targets).launch(blocks, 256, 0, _parameters(tensors, num_targets))
        return gradients
    tensors |= {"weight": weights[0].contiguous(), "grad_weight": grad_weights[0], "grad_bias": grad_biases[0]}
    blocks = _summing_blocks(weights[0]) + min(-(-count * x.shape[1] // THREADS), _MAX_BLOCKS)
    _kernel("linear_loss_backward", x, num_targets).launch(blocks, THREADS, 4 * THREADS, _parameters(tensors, num_targets), overlap=True)
    return gradients


def _check_maps(weights: list[Tensor]) -> None:
    if len(weights) > 1:
        raise ValueError(
            f"head_loss: on CUDA the operator takes at most one linear layer, got {len(weights)}; use molgcn.ops.head_loss, which takes any"
        )


def _summing_blocks(weight: Tensor) -> int:
    """Return the number of blocks that sum the gradients of weight and bias."""
    num_targets, width = weight.shape
    return (width // _COLUMNS + 1) * -(-num_targets // _TARGETS)


def launch_ends(x: Tensor, weight: Tensor, slopes: Tensor, terms: Tensor, sums: Tensor, value: Tensor, head_sums: Tensor) -> None:
    """Compute the loss and the head's gradient sums from known slopes and terms, in one launch.

    Args:
        x: The input of the head, float32 [B, H].
        weight: The head's weight, float32 [T, H].
        slopes: The derivative of each term, float32 [B, T].
        terms: The sum and the number of the terms of each part, float64 [parts, 2].
        sums: Written: the sum and the number of all terms, float64 [2].
        value: Written: the loss, a float32 scalar.
        head_sums: Written: the sums over all molecules of slopes times `x` and of slopes, float32 [T H + T].
    """
    tensors = {"x": x, "weight": weight, "slopes": slopes, "partial": terms, "sums": sums, "loss": value}
    tensors |= {"grad_weight": head_sums, "grad_bias": head_sums[weight.numel() :]}
    parameters = _parameters(tensors, weight.shape[0], num_partial=len(terms))
    _kernel("linear_loss_ends", x, weight.shape[0]).launch(_summing_blocks(weight) + 1, THREADS, 16 * THREADS, parameters, overlap=True)


torch.library.impl("molgcn::head_loss", "CUDA", forward)
torch.library.impl("molgcn::head_loss_backward", "CUDA", backward)
