r"""`molgcn::gcn_loss`: all layers, the pooling, a linear head and its loss; on CUDA two launches forward and one backward."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from molgcn.cuda_runtime.launch import gpu
from molgcn.ops import head_loss, head_loss_cuda
from molgcn.ops.expect import expect
from molgcn.ops.gcn_stack import ARGUMENTS, StackInputs, empty_gradients, empty_outputs
from molgcn.ops.gcn_stack_autograd import NUM_TENSORS, flat, in_order, lists_of, nested
from molgcn.ops.gcn_stack_check import check, check_backward
from molgcn.ops.gcn_stack_cuda import launch_backward, launch_forward, prepare_inputs, saved_bytes, strategy_of, with_tiles
from molgcn.ops.gcn_stack_plan import forward_plan
from molgcn.ops.head_loss import check as check_head
from molgcn.ops.head_loss import check_kept, number_of
from molgcn.ops.transforms import refuse_transforms

torch.library.define(
    "molgcn::gcn_loss",
    "(Tensor head_weight, Tensor head_bias, Tensor target, Tensor target_mean, Tensor target_std, str loss, float delta, "
    f"{ARGUMENTS}) -> (Tensor value, Tensor sums, Tensor slopes, Tensor head_sums, Tensor saved)",
    tags=(torch.Tag.pt2_compliant_tag,),
)
torch.library.define(
    "molgcn::gcn_loss_backward",
    "(Tensor grad_loss, Tensor sums, Tensor slopes, Tensor head_sums, Tensor saved, bool needs_grad_x, Tensor head_weight, "
    f"{ARGUMENTS}) -> (Tensor grad_head_weight, Tensor grad_head_bias, "
    "Tensor grad_x, Tensor[] grad_weights, Tensor[] grad_biases, Tensor[] grad_norm_weights, Tensor[] grad_norm_biases)",
    tags=(torch.Tag.pt2_compliant_tag,),
)
_HEAD = ("head_weight", "head_bias", "target", "target_mean", "target_std")
_NUM_OTHERS = len(_HEAD) + 3  # arguments of `_Loss` before the stack's tensors


def takes(inputs: StackInputs) -> bool:
    """Whether :func:`gcn_loss` does: of at least one molecule, in float32 for strategy "stack", with `save_for_backward`."""
    return inputs.save_for_backward and inputs.num_graphs > 0 and inputs.x.dtype == torch.float32 and strategy_of(inputs) == "stack"


def gcn_loss(
    inputs: StackInputs, weight: Tensor, bias: Tensor, target: Tensor, mean: Tensor, std: Tensor, loss: str, delta: float = 1.0
) -> tuple[Tensor, Tensor]:
    r""":func:`molgcn.ops.head_loss.head_loss` of what :func:`molgcn.ops.gcn_stack.gcn_stack` pools.

    Args:
        inputs: on CUDA, that :func:`takes` is true of.
        weight: float32 [T, H]; this and the others as :func:`molgcn.ops.head_loss.head_loss` takes them.
        bias: float32 [T].
        target: float32 [B, T], NaN = missing.
        mean: float32 [T].
        std: float32 [T].
        loss: "mse", "l1" or "huber".
        delta: where huber turns from square to linear.

    Returns:
        - loss: float32, 0 where nothing is known; differentiable, once
        - sums: float64 [2], sum and number of the terms

    Raises:
        ValueError: for tensors that do not fit, or inputs of another kind.
    """
    refuse_transforms()
    _refuse_others(inputs)
    head = (weight, bias, target, mean, std)
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():  # its autograd kernel, without a turn through the dispatcher
        value, sums, *_ = _Loss.apply(inputs, loss, delta, *head, *flat(inputs))
    else:
        value, sums, *_ = torch.ops.molgcn.gcn_loss.default(*head, loss, delta, *inputs)
    return value, sums


def _refuse_others(inputs: StackInputs) -> None:
    if not takes(inputs):
        raise ValueError(
            "gcn_loss is of at least one molecule, in float32 for strategy stack, with save_for_backward; use gcn_stack and head_loss"
        )


class _Loss(torch.autograd.Function):
    """The operator's derivative, as :mod:`molgcn.ops.gcn_stack_autograd` has the layers'."""

    @staticmethod
    def forward(ctx: Any, inputs: StackInputs, loss: str, delta: float, *tensors: Tensor) -> tuple[Tensor, ...]:
        head = tensors[: len(_HEAD)]
        with torch._C._AutoDispatchBelowAutograd():
            outputs = torch.ops.molgcn.gcn_loss.default(*head, loss, delta, *inputs)
        ctx.mark_non_differentiable(*outputs[1:])
        ctx.set_materialize_grads(False)
        ctx.lengths, ctx.options = [len(parameters) for parameters in lists_of(inputs)], inputs[NUM_TENSORS:]
        ctx.num_inputs = len(tensors) - len(head)
        ctx.save_for_backward(*outputs[1:], head[0], *flat(inputs))
        return outputs

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor | None, *_: Any) -> tuple:
        if grad_loss is None:
            return (None,) * (_NUM_OTHERS + ctx.num_inputs)
        *kept, weight = ctx.saved_tensors[:5]
        inputs = nested(ctx.saved_tensors[5:], ctx.lengths, ctx.options)
        needs_grad_x = ctx.needs_input_grad[_NUM_OTHERS]
        # create_graph: differentiating it again is an error
        with nullcontext() if torch.is_grad_enabled() else torch._C._AutoDispatchBelowAutograd():
            gradients = torch.ops.molgcn.gcn_loss_backward.default(grad_loss, *kept, needs_grad_x, weight, *inputs)
        grad_weight, grad_bias, grad_x, *parameters = gradients
        of_stack = in_order(grad_x if needs_grad_x else None, parameters, ctx.num_inputs)
        return None, None, None, grad_weight, grad_bias, None, None, None, *of_stack


def _forward(*args: Any) -> tuple[Tensor, ...]:
    head = {name: tensor.contiguous() for name, tensor in zip(_HEAD, args, strict=False)}
    loss, delta = args[len(_HEAD) : _NUM_OTHERS - 1]
    inputs, weight = StackInputs(*args[_NUM_OTHERS - 1 :]), head["head_weight"]
    check(inputs)
    _refuse_others(inputs)
    inputs = prepare_inputs(inputs)
    pooled, _, _, saved = empty_outputs(inputs)
    inputs = with_tiles(inputs)
    target, mean, std = (head[name] for name in _HEAD[2:])
    check_head(pooled, [weight], [head["head_bias"]], target, mean, std, (torch.float32,))
    assert inputs.tile_ptr is not None
    value, sums, slopes = head_loss.empty_outputs(pooled, [weight])[:3]
    num_terms = (inputs.tile_ptr.shape[0] - 1) * forward_plan(inputs, gpu(pooled.device)).warps
    terms = pooled.new_empty(num_terms, 2, dtype=torch.double)
    numbers = {"num_targets": weight.shape[0], "kind": number_of(loss), "delta": delta}
    launch_forward(inputs, pooled, saved, {**head, "slopes": slopes, "terms": terms}, loss=True, **numbers)
    return value, sums, slopes, head_loss_cuda.launch_ends(pooled, weight, slopes, terms, sums, value), saved


@torch.library.register_fake("molgcn::gcn_loss")
def _fake(*args: Any) -> tuple[Tensor, ...]:
    inputs, weight = StackInputs(*args[_NUM_OTHERS - 1 :]), args[0]
    pooled, _, _, saved = empty_outputs(inputs)
    return *head_loss.empty_outputs(pooled, [weight])[:3], head_loss_cuda.empty_head_sums(weight), saved


def _backward(
    grad_loss: Tensor, sums: Tensor, slopes: Tensor, head_sums: Tensor, saved: Tensor, needs_grad_x: bool, weight: Tensor, *args: Any
) -> tuple:
    inputs = StackInputs(*args)
    check_backward(saved, saved_bytes(inputs), inputs)
    check_kept(grad_loss, sums, slopes, (inputs.num_graphs, weight.shape[0]), inputs.x)
    expect("gcn_loss", "head_sums", head_sums, (weight.numel() + weight.shape[0],), inputs.x)
    gradients = grad_weight, grad_bias, *of_stack = _empty_gradients(grad_loss, sums, slopes, head_sums, saved, needs_grad_x, weight, *args)
    tensors = {"head_weight": weight.contiguous(), "slopes": slopes, "loss_sums": sums, "head_sums": head_sums, "grad_loss": grad_loss}
    tensors |= {"grad_head_weight": grad_weight, "grad_head_bias": grad_bias}
    inputs = with_tiles(prepare_inputs(inputs))
    launch_backward(inputs, saved, needs_grad_x, of_stack, tensors, loss=True, num_targets=weight.shape[0])
    return gradients


@torch.library.register_fake("molgcn::gcn_loss_backward")
def _empty_gradients(
    grad_loss: Tensor, sums: Tensor, slopes: Tensor, head_sums: Tensor, saved: Tensor, needs_grad_x: bool, weight: Tensor, *args: Any
) -> tuple:
    of_head = weight.new_empty(weight.shape), weight.new_empty(weight.shape[0])
    return *of_head, *empty_gradients(grad_loss, saved, needs_grad_x, *args)


def _autograd(*args: Any) -> tuple[Tensor, ...]:
    inputs = StackInputs(*args[_NUM_OTHERS - 1 :])
    return _Loss.apply(inputs, *args[len(_HEAD) : _NUM_OTHERS - 1], *args[: len(_HEAD)], *flat(inputs))


def _no_second_order(ctx: Any, *grads: Any) -> tuple:
    raise RuntimeError("gcn_loss has no second derivative; use backend=pyg to differentiate twice")


torch.library.impl("molgcn::gcn_loss", "Autograd", _autograd)
torch.library.register_autograd("molgcn::gcn_loss_backward", _no_second_order)
torch.library.impl("molgcn::gcn_loss", "CUDA", _forward)
torch.library.impl("molgcn::gcn_loss_backward", "CUDA", _backward)
