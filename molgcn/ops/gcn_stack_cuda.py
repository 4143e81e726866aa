"""`molgcn::gcn_stack` on CUDA: strategy `stack`, one launch each way (`cuda/gcn_stack_*.cu`), and the choice of one.

Imported for its registrations.
"""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from molgcn.cuda_runtime.launch import Kernel, Prefetch, gpu, kernel
from molgcn.cuda_runtime.structs import fill
from molgcn.errors import UserError
from molgcn.ops import gcn_aggregated_cuda, gcn_layers_cuda, gcn_layers_plan, head_loss_cuda
from molgcn.ops.expect import expect
from molgcn.ops.gcn_stack import POOLS, PRECISIONS, StackInputs, empty_gradients, empty_outputs, register_saved_size
from molgcn.ops.gcn_stack_arguments import MAX_LAYERS, parameters_of, table_size
from molgcn.ops.gcn_stack_check import check, check_backward
from molgcn.ops.gcn_stack_discard import discard_from
from molgcn.ops.gcn_stack_plan import (
    TILE_MAX_WIDTH,
    Plan,
    Saved,
    backward_plan,
    forward_plan,
    may_be_large,
    next_fit,
    scratch_bytes,
    wide_input,
)

MAX_AUTOMATIC = 96  # features up to which `stack` is faster than `vertex`: docs/decisions/cuda_speed.md
_NORMS = (None, "layer", "batch")


def strategy_of(inputs: StackInputs) -> str:
    """The strategy that "auto" means."""
    if inputs.strategy != "auto":
        return inputs.strategy
    norm = inputs.norm if inputs.training or inputs.norm == "layer" else None
    return automatic(norm, inputs.hidden_channels, inputs.num_layers) if inputs.x.dtype == torch.float32 else "vertex"


def automatic(norm: str | None, hidden_channels: int, num_layers: int) -> str:
    """`stack` where it can train a model in float32 and is the faster one, else `vertex`."""
    return "stack" if norm != "batch" and hidden_channels <= MAX_AUTOMATIC and num_layers <= MAX_LAYERS else "vertex"


def _by_layers(inputs: StackInputs) -> ModuleType:
    """What runs strategy `vertex`: kernels of whole layers where they can, else kernels that only aggregate."""
    whole = inputs.hidden_channels <= gcn_layers_plan.MAX_HIDDEN and inputs.x.dtype == torch.float32
    return gcn_layers_cuda if whole else gcn_aggregated_cuda


def saved_bytes(inputs: StackInputs) -> int:
    """Bytes that forward leaves for backward."""
    return Saved(inputs).num_bytes if strategy_of(inputs) == "stack" else _by_layers(inputs).saved_bytes(inputs)


def forward(*args: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Schema in :mod:`molgcn.ops.gcn_stack`."""
    inputs = StackInputs(*args)
    check(inputs)
    inputs = prepare_inputs(inputs)
    outputs = empty_outputs(inputs)
    if strategy_of(inputs) != "stack":
        _by_layers(inputs).forward(inputs, outputs)
    elif inputs.num_graphs > 0:
        pooled, _, _, saved = outputs
        launch_forward(with_tiles(inputs), pooled, saved, {})
    return outputs


def predict(head_weight: Tensor, head_bias: Tensor, *args: Any) -> Tensor:
    """Schema in :mod:`molgcn.ops.gcn_predict`."""
    inputs = StackInputs(*args)
    if strategy_of(inputs) != "stack" or inputs.num_graphs == 0:
        with torch.autocast("cuda", enabled=False):
            return F.linear(forward(*args)[0], head_weight, head_bias)
    inputs = prepare_inputs(inputs)
    pooled, _, _, saved = empty_outputs(inputs)
    predictions = inputs.x.new_empty(inputs.num_graphs, head_weight.shape[0])
    head = {"head_weight": head_weight.contiguous(), "head_bias": head_bias.contiguous(), "predictions": predictions}
    launch_forward(with_tiles(inputs), pooled, saved, head, num_targets=head_weight.shape[0])
    return predictions


def launch_forward(
    inputs: StackInputs, pooled: Tensor, saved: Tensor, tensors: dict[str, Tensor], loss: bool = False, **numbers: float
) -> None:
    """One launch.

    Args:
        inputs: with tiles.
        pooled: [B, H], written.
        saved: see :class:`Saved`, written.
        tensors: of the head and its loss, by their names in molgcn/ops/gcn_stack_arguments.py.
        loss: whether there is one.
        **numbers: by their names too.
    """
    plan = forward_plan(inputs, gpu(inputs.x.device))
    prefetch = partial(prefetch_kernels, inputs, int(numbers["num_targets"]) if loss else 0)
    function = _kernel("gcn_stack_forward", inputs, plan, prefetch=prefetch, loss=loss)
    scratch = inputs.x.new_empty(scratch_bytes(inputs, plan) // 4)
    parameters = parameters_of(inputs, saved, scratch)
    fill(parameters, {"pooled": pooled, **tensors, **numbers})
    function.launch(plan.grid, plan.threads, plan.shared_bytes, parameters)


def backward(grad_pooled: Tensor, saved: Tensor, needs_grad_x: bool, *args: Any) -> tuple[Tensor, list, list, list, list]:
    """Schema in :mod:`molgcn.ops.gcn_stack`."""
    inputs = StackInputs(*args)
    expect("gcn_stack", "grad_pooled", grad_pooled, (inputs.num_graphs, inputs.hidden_channels), inputs.x)
    check_backward(saved, saved_bytes(inputs), inputs)
    inputs = prepare_inputs(inputs)
    grad_pooled = grad_pooled.contiguous()
    gradients = empty_gradients(grad_pooled, saved, needs_grad_x, *args)
    if inputs.num_graphs == 0:
        for tensor in (gradients[0], *(tensor for tensors in gradients[1:] for tensor in tensors)):
            tensor.zero_()
        return gradients
    if strategy_of(inputs) != "stack":
        _by_layers(inputs).backward(inputs, grad_pooled, saved, gradients)
        return gradients
    launch_backward(with_tiles(inputs), saved, needs_grad_x, gradients, {"grad_pooled": grad_pooled})
    return gradients


def launch_backward(
    inputs: StackInputs,
    saved: Tensor,
    needs_grad_x: bool,
    gradients: tuple[Tensor, list, list, list, list],
    tensors: dict[str, Tensor],
    loss: bool = False,
    **numbers: float,
) -> None:
    """One launch; `gradients` as :func:`empty_gradients` makes them, the rest as :func:`launch_forward`."""
    plan = backward_plan(inputs, gpu(inputs.x.device))
    function = _kernel("gcn_stack_backward", inputs, plan, needs_grad_x, loss=loss)
    large = scratch_bytes(inputs, plan) // 4
    scratch = inputs.x.new_empty(large + plan.grid * (plan.gradient_size + plan.reduced_size))
    parameters = parameters_of(inputs, saved, scratch, gradients[1:])
    parameters.discard_from = discard_from(inputs, gpu(inputs.x.device))
    places = {"totals": scratch[large:], "partial": scratch[large + plan.grid * plan.gradient_size :]}
    fill(parameters, {**tensors, **places, **numbers, **({"grad_x": gradients[0]} if needs_grad_x else {})})
    function.launch(plan.grid, plan.threads, plan.shared_bytes, parameters, cooperative=True, overlap=True)


def prepare_inputs(inputs: StackInputs) -> StackInputs:
    """Return the inputs with their tensors as kernels read them.

    Raises:
        UserError: for what the strategy cannot do.
    """
    if inputs.x.dtype not in (torch.float32, torch.float64):
        raise UserError(
            f"backend=fused on CUDA computes in float32 or float64, not {inputs.x.dtype}. Convert model and batch, or use backend=pyg."
        )
    if strategy_of(inputs) == "stack":
        if inputs.x.dtype != torch.float32:
            raise UserError(f"backend.strategy=stack computes in float32, not {inputs.x.dtype}. Convert model and batch, or use auto.")
        if inputs.hidden_channels > TILE_MAX_WIDTH:
            raise UserError(
                f"model.hidden_channels={inputs.hidden_channels} is more than backend.strategy=stack holds, {TILE_MAX_WIDTH}. Use auto."
            )
        if inputs.num_layers > MAX_LAYERS:
            raise UserError(f"model.num_layers={inputs.num_layers} is more than backend.strategy=stack has, {MAX_LAYERS}. Use auto.")
        if inputs.batch_statistics:
            raise UserError("backend.strategy=stack cannot train model.norm=batch, which couples all molecules. Use auto or vertex.")
    elif inputs.folded:
        raise UserError(
            f"backend.strategy={strategy_of(inputs)} does not take a folded batch, whose rows stand for several atoms; stack does. "
            "Give a batch that is not folded."
        )
    return StackInputs(*(_contiguous(value) for value in inputs))


def _contiguous(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_contiguous(tensor) for tensor in value]
    if not isinstance(value, Tensor):
        return value
    value = value.contiguous()
    return value if value.data_ptr() % 16 == 0 or value.dtype != torch.float32 else value.clone()


def with_tiles(inputs: StackInputs) -> StackInputs:
    """The inputs with tiles of their own where they come without."""
    return inputs if inputs.tile_ptr is not None else inputs._replace(tile_ptr=next_fit(inputs.ptr, inputs.tile_nodes))


def _kernel(
    name: str, inputs: StackInputs, plan: Plan, needs_grad_x: bool = False, prefetch: Prefetch | None = None, loss: bool = False
) -> Kernel:
    return kernel(f"{name}.cu", name, _defines(inputs, plan, needs_grad_x, loss), inputs.x.device, prefetch)


def prefetch_kernels(inputs: StackInputs, loss_targets: int) -> list[tuple[str, dict[str, int]]]:
    """What follows a forward that keeps something, with a loss of so many targets or without: compiled beside it."""
    if not inputs.save_for_backward:
        return []
    defines = _defines(inputs, backward_plan(inputs, gpu(inputs.x.device)), inputs.x.requires_grad, loss_targets > 0)
    return [("gcn_stack_backward.cu", defines), *([head_loss_cuda.source(loss_targets)] if loss_targets else [])]


def _defines(inputs: StackInputs, plan: Plan, needs_grad_x: bool = False, loss: bool = False) -> dict[str, int]:
    weights = (*inputs.weights[1:], *inputs.biases, *inputs.norm_weights, *inputs.norm_biases)
    return {
        "HIDDEN": inputs.hidden_channels,
        "MAX_LAYERS": table_size(inputs.num_layers),
        "PRECISION": PRECISIONS.index(inputs.precision),
        "NORM": _NORMS.index(inputs.norm),
        "RESIDUAL": int(inputs.residual),
        "DROPOUT": int(inputs.dropout_rate > 0),
        "SELF_LOOPS": int(inputs.add_self_loops),
        "LAST_ACTIVATION": int(inputs.last_activation),
        "POOL": POOLS.index(inputs.pool),
        "ALIGNED": int(inputs.hidden_channels % 4 == 0 and all(tensor.data_ptr() % 16 == 0 for tensor in weights)),
        "WIDE_INPUT": int(wide_input(inputs)),
        "INPUT_GRADIENT": int(needs_grad_x),
        "SAVE": int(inputs.save_for_backward),
        "LARGE_MOLECULES": int(may_be_large(inputs, plan)),
        "FOLDED": int(inputs.folded),
        "LOSS": int(loss),
        **plan.defines,
    }


register_saved_size("cuda", saved_bytes)
torch.library.impl("molgcn::gcn_stack", "CUDA", forward)
torch.library.impl("molgcn::gcn_stack_backward", "CUDA", backward)
