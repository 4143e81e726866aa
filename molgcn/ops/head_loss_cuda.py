"""`molgcn::head_loss` on CUDA. Import this module to register it.

Kernels compute the head, its loss and all gradients: those of `cuda/head_layers_*.cu` a head with hidden layers, those of
`cuda/head_loss.cu` a head of one linear layer or none. They are one launch each way, or two for larger batches. Hidden layers that are too
wide for :func:`molgcn.ops.head_layers_plan.plan_head` are PyTorch's, and the rest is as in a head of one layer.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from molgcn.cuda_runtime.kernel import Kernel
from molgcn.cuda_runtime.launch import kernel
from molgcn.cuda_runtime.structs import Header, fill
from molgcn.ops import head_layers_cuda
from molgcn.ops.head_loss import Outputs, check, check_backward, empty_gradients, empty_outputs, implement, number_of

THREADS = 512  # threads of a block that computes gradients
ONE_BLOCK_THREADS = 1024  # threads of the only block of a forward launch
_SUMS_BYTES = 512  # two doubles for each of up to 32 warps
_COLUMNS = 4
_TARGETS = 8  # the number of targets that are summed at a time if there are several
_ONE_BLOCK = 512  # up to this many molecules, one block is faster than two launches
MAX_BLOCKS = 1024
_DTYPES = (torch.float32,)

HEADER = Header(
    "head_loss_structs.h",
    Parameters=[
        ("const float*", "x weight bias"),  # [num_graphs, width], [num_targets, width], [num_targets]
        ("const float*", "target mean std"),  # [num_graphs, num_targets], [num_targets]
        ("float*", "derivatives"),  # [num_graphs, num_targets]: derivative of each term, 0 where the target is missing
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
    kind, outputs = number_of(loss), empty_outputs(x, weights)
    value, sums, derivatives, hidden = outputs
    x, target, mean, std, *parameters = (tensor.contiguous() for tensor in (x, target, mean, std, *weights, *biases))
    weights, biases = parameters[: len(weights)], parameters[len(weights) :]
    tensors = {"target": target, "mean": mean, "std": std, "sums": sums, "loss": value}
    states = _states(hidden, len(x), weights)
    plan = head_layers_cuda.plan_of(x, weights)
    if plan is not None:
        terms = x.new_empty(2 * plan.blocks, dtype=torch.double)
        head_layers_cuda.launch_forward(plan, [x, *states, derivatives], weights, biases, tensors | {"terms": terms}, kind, delta)
        if plan.blocks > 1:
            _launch_sums({"partial": terms, "sums": sums, "loss": value}, plan.blocks)
        return outputs
    for weight, bias, state in zip(weights, biases, states, strict=False):
        x = torch.addmm(bias, x, weight.T, out=state).relu_()
    tensors |= {"x": x, "derivatives": derivatives} | ({"weight": weights[-1], "bias": biases[-1]} if weights else {})
    _launch_last_forward(tensors, kind, delta)
    return outputs


def _launch_last_forward(tensors: dict[str, Tensor], kind: int, delta: float) -> None:
    """Compute the loss of the last linear layer's outputs, or of the predictions `x` without a layer."""
    (count, num_targets), linear = tensors["derivatives"].shape, "weight" in tensors
    blocks = 1 if not linear or count <= _ONE_BLOCK else min(-(-count // 32), MAX_BLOCKS)
    threads = ONE_BLOCK_THREADS if blocks == 1 else 256
    tensors["partial"] = tensors["x"].new_empty(2 * blocks, dtype=torch.double)
    parameters = _parameters(tensors, num_targets, kind=kind, delta=delta)
    name = "linear_loss_forward" if linear else "masked_loss_forward"
    _kernel(name, tensors["x"], num_targets).launch(blocks, threads, _SUMS_BYTES, parameters, overlap=linear)
    if blocks > 1:
        _launch_sums(tensors, blocks)


def _launch_sums(tensors: dict[str, Tensor], blocks: int) -> None:
    """Add up the `partial` sums of blocks, and compute the loss."""
    sums = {name: tensors[name] for name in ("partial", "sums", "loss")}
    parameters = fill(HEADER.ctype()(num_partial=blocks), sums)
    _kernel("linear_loss_sums", tensors["sums"], 1).launch(1, 256, _SUMS_BYTES, parameters, overlap=True)


def backward(
    grad_loss: Tensor, sums: Tensor, derivatives: Tensor, hidden: Tensor, x: Tensor, weights: list[Tensor]
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Compute the gradients; see :mod:`molgcn.ops.head_loss`."""
    check_backward(grad_loss, sums, derivatives, hidden, x, weights, _DTYPES)
    gradients = grad_x, grad_weights, grad_biases = empty_gradients(grad_loss, sums, derivatives, hidden, x, weights)
    sums, x, derivatives, hidden, *weights = (tensor.contiguous() for tensor in (sums, x, derivatives, hidden, *weights))
    inputs = [x, *_states(hidden, len(x), weights)]
    plan = head_layers_cuda.plan_of(x, weights)
    if plan is not None:
        tensors = {"sums": sums, "grad_loss": grad_loss, "grad_x": grad_x}
        head_layers_cuda.launch_backward(plan, [*inputs, derivatives], weights, tensors, grad_weights, grad_biases)
        return gradients
    grad = torch.empty_like(inputs[-1]) if len(inputs) > 1 else grad_x
    tensors = {"x": inputs[-1], "derivatives": derivatives, "sums": sums, "grad_loss": grad_loss, "grad_x": grad}
    tensors |= {"weight": weights[-1], "grad_weight": grad_weights[-1], "grad_bias": grad_biases[-1]} if weights else {}
    _launch_last_backward(tensors)
    for index in reversed(range(len(inputs) - 1)):
        grad = torch.ops.aten.threshold_backward(grad, inputs[index + 1], 0)
        torch.mm(grad.T, inputs[index], out=grad_weights[index])
        torch.sum(grad, 0, out=grad_biases[index])
        grad = torch.mm(grad, weights[index], out=None if index else grad_x)
    return gradients


def _launch_last_backward(tensors: dict[str, Tensor]) -> None:
    """Compute the gradients of the last linear layer, or of the predictions `x` without a layer."""
    x, num_targets = tensors["x"], tensors["derivatives"].shape[1]
    parameters = _parameters(tensors, num_targets)
    if "weight" not in tensors:
        blocks = max(1, min(-(-x.numel() // 256), 4096))
        _kernel("masked_loss_backward", x, num_targets).launch(blocks, 256, 0, parameters)
        return
    blocks = _summing_blocks(tensors["weight"]) + min(-(-x.numel() // THREADS), MAX_BLOCKS)
    _kernel("linear_loss_backward", x, num_targets).launch(blocks, THREADS, 4 * THREADS, parameters, overlap=True)


def _states(hidden: Tensor, num_graphs: int, weights: list[Tensor]) -> list[Tensor]:
    """Return the outputs [B, H_i] of all linear layers but the last, as views of `hidden`."""
    widths = [weight.shape[0] for weight in weights[:-1]]
    parts = hidden.split([num_graphs * width for width in widths])
    return [part.view(num_graphs, width) for part, width in zip(parts, widths, strict=True)]


def _summing_blocks(weight: Tensor) -> int:
    """Return the number of blocks that sum the gradients of weight and bias."""
    num_targets, width = weight.shape
    return (width // _COLUMNS + 1) * -(-num_targets // _TARGETS)


def launch_ends(x: Tensor, weight: Tensor, derivatives: Tensor, terms: Tensor, sums: Tensor, value: Tensor, head_sums: Tensor) -> None:
    """Compute the loss and the head's gradient sums from known derivatives and terms, in one launch.

    Args:
        x: The input of the head, float32 [B, H].
        weight: The head's weight, float32 [T, H].
        derivatives: The derivative of each term, float32 [B, T].
        terms: The sum and the number of the terms of each part, float64 [parts, 2].
        sums: Written: the sum and the number of all terms, float64 [2].
        value: Written: the loss, a float32 scalar.
        head_sums: Written: the sums over all molecules of derivatives times `x` and of derivatives, float32 [T H + T].
    """
    tensors = {"x": x, "weight": weight, "derivatives": derivatives, "partial": terms, "sums": sums, "loss": value}
    tensors |= {"grad_weight": head_sums, "grad_bias": head_sums[weight.numel() :]}
    parameters = _parameters(tensors, weight.shape[0], num_partial=len(terms))
    _kernel("linear_loss_ends", x, weight.shape[0]).launch(_summing_blocks(weight) + 1, THREADS, 4 * THREADS, parameters, overlap=True)


implement("cuda", forward, backward)
