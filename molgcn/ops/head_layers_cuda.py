"""The hidden layers, the last layer and the loss of a head on CUDA, by `cuda/head_layers_*.cu`.

Forward and backward take one launch each if one block takes all molecules. Otherwise each takes a second one, which adds up the sums of
all blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from torch import Tensor

from molgcn.cuda_runtime.kernel import Kernel
from molgcn.cuda_runtime.launch import gpu, kernel
from molgcn.cuda_runtime.structs import Header, fill
from molgcn.ops.head_layers_plan import THREADS, HeadPlan, plan_head, quads

_SUM_QUADS, _SUM_LANES = 32, 8  # a block that adds up parts has so many quads, and threads that share each

HEADER = Header(
    "head_layers_structs.h",
    Plane=[
        ("float*", "rows"),  # [num_graphs, width]: the input of the head or of a layer, or the derivatives
        ("int", "width stride begin gradient_begin"),  # where a row begins among those of all planes, and the row of its gradient
    ],
    Layer=[
        ("const float*", "weight bias"),  # [outputs, inputs], [outputs]
        ("float*", "grad_weight grad_bias"),
        ("int", "chunk part first_tile"),  # quads of a chunk; where its gradients are in a part; its first tile of 4 x 4 gradients
    ],
    Parameters=[
        ("Plane", "planes[PLANES]"),
        ("Layer", "layers[LAYERS]"),
        ("const float*", "target mean std"),  # [num_graphs, num_targets], [num_targets]; null where predictions are computed, and no loss
        ("double*", "terms sums"),  # [blocks, 2], [2]: sum and number of the terms
        ("float*", "loss"),  # the mean over known targets, 0 without any
        ("const float*", "grad_loss"),
        ("float*", "grad_x parts"),  # [num_graphs, width], [num_parts, part_size]: the gradients' sums, null with one block
        ("int", "num_graphs rows num_columns chunk_size num_tiles num_parts part_size kind"),
        ("float", "delta"),
    ],
)


def plan_of(x: Tensor, weights: list[Tensor]) -> HeadPlan | None:
    """Return how a head is divided, or None without hidden layers and where these are PyTorch's, as `plan_head` says."""
    if len(weights) < 2:
        return None
    return plan_head((x.shape[1], *(weight.shape[0] for weight in weights)), x.shape[0], gpu(x.device))


def source(direction: str, num_layers: int) -> tuple[str, dict[str, int]]:
    """Return the source file and macros of the kernels of a direction, "forward" or "backward"."""
    return f"head_layers_{direction}.cu", {"LAYERS": num_layers, "PLANES": num_layers + 1}


def launch_forward(
    plan: HeadPlan,
    planes: Sequence[Tensor],
    weights: list[Tensor],
    biases: list[Tensor],
    tensors: dict[str, Tensor],
    kind: int = 0,
    delta: float = 0.0,
) -> None:
    """Compute the hidden states, the derivatives and the terms of each block, and with one block the loss.

    Args:
        plan: How the head is divided.
        planes: The head's input [B, H], and written: its hidden states [B, H_i] and the derivatives [B, T], or without targets predictions.
        weights: The head's weights.
        biases: The head's biases.
        tensors: `target`, `mean`, `std`, and written: `terms`, `sums` and `loss`, as in :data:`HEADER`; empty without targets.
        kind: The number of the loss.
        delta: The difference at which "huber" changes from square to linear.
    """
    parameters = fill(_parameters(plan, planes, weights), tensors | {"kind": kind, "delta": delta})
    for layer, bias, chunk in zip(parameters.layers, biases, plan.forward_chunks, strict=True):
        layer.bias, layer.chunk = bias.data_ptr(), chunk
    _kernel("forward", "head_layers_forward", weights).launch(plan.blocks, THREADS, plan.shared, parameters, overlap=True)


def launch_backward(
    plan: HeadPlan,
    planes: Sequence[Tensor],
    weights: list[Tensor],
    tensors: dict[str, Tensor],
    grad_weights: list[Tensor],
    grad_biases: list[Tensor],
) -> None:
    """Compute the gradients.

    Args:
        plan: How the head is divided.
        planes: The head's input [B, H], its hidden states [B, H_i] and the derivatives, or gradients of predictions, [B, T].
        weights: The head's weights.
        tensors: `grad_loss`, `sums`, both for derivatives alone, and written: `grad_x`, as in :data:`HEADER`.
        grad_weights: Written: the gradients of the weights.
        grad_biases: Written: the gradients of the biases.
    """
    parameters, part_size = fill(_parameters(plan, planes, weights), tensors), 0
    for layer, weight, chunk, of_weight, of_bias in zip(
        parameters.layers, weights, plan.backward_chunks, grad_weights, grad_biases, strict=True
    ):
        layer.grad_weight, layer.grad_bias, layer.chunk = of_weight.data_ptr(), of_bias.data_ptr(), chunk
        layer.part, layer.first_tile = part_size, parameters.num_tiles
        outs, across = weight.shape[0], quads(weight.shape[1] + 1)
        part_size += outs * 4 * across
        parameters.num_tiles += quads(outs) * across
    if not plan.is_whole:
        parts = planes[0].new_empty(plan.blocks * part_size)
        fill(parameters, {"parts": parts, "num_parts": plan.blocks, "part_size": part_size})
    _kernel("backward", "head_layers_backward", weights).launch(plan.blocks, THREADS, plan.shared, parameters, overlap=True)
    if not plan.is_whole:
        blocks = -(-part_size // (4 * _SUM_QUADS))
        threads = _SUM_LANES * _SUM_QUADS
        _kernel("backward", "head_layers_sums", weights).launch(blocks, threads, 16 * threads, parameters, overlap=True)


def _kernel(direction: str, name: str, weights: list[Tensor]) -> Kernel:
    file, defines = source(direction, len(weights))
    return kernel(file, name, defines, weights[0].device)


def _parameters(plan: HeadPlan, planes: Sequence[Tensor], weights: list[Tensor]) -> Any:
    _, macros = source("forward", len(weights))
    parameters: Any = HEADER.ctype("Parameters", **macros)(
        num_graphs=planes[0].shape[0], rows=plan.rows, num_columns=plan.num_columns, chunk_size=plan.chunk_size
    )
    *begins, _ = accumulate((*plan.strides, *plan.strides[1:-1]), initial=0)
    gradients = [0, *begins[len(planes) :], begins[len(planes) - 1]]  # the last plane has the derivatives
    for it, plane, stride, begin, gradient in zip(parameters.planes, planes, plan.strides, begins[: len(planes)], gradients, strict=True):
        it.rows, it.width, it.stride, it.begin, it.gradient_begin = plane.data_ptr(), plane.shape[1], stride, begin, gradient
    for layer, weight in zip(parameters.layers, weights, strict=True):
        layer.weight = weight.data_ptr()
    return parameters
