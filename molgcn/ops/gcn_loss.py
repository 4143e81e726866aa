r"""Layers, pooling, a linear head and its loss as one on CUDA: two launches forward, one backward, with strategy `stack`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from molgcn.ops import linear_loss
from molgcn.ops.gcn_stack import StackInputs, check, empty_gradients, empty_outputs
from molgcn.ops.gcn_stack_autograd import NUM_TENSORS, flat, in_order, lists_of, nested
from molgcn.ops.gcn_stack_cuda import launch_backward, launch_forward, supported, with_tiles
from molgcn.ops.gcn_stack_plan import forward_plan
from molgcn.ops.launch import gpu
from molgcn.ops.masked_loss import LOSSES


def gcn_loss(
    inputs: StackInputs, weight: Tensor, bias: Tensor, target: Tensor, mean: Tensor, std: Tensor, loss: str, delta: float = 1.0
) -> tuple[Tensor, Tensor]:
    r""":func:`molgcn.ops.linear_loss.linear_loss` of what :func:`molgcn.ops.gcn_stack.gcn_stack` pools.

    Args:
        inputs: of at least one molecule, for strategy "stack" in float32 on CUDA, with `save_for_backward`.
        weight: float32 [T, H]; this and the others as :func:`molgcn.ops.linear_loss.linear_loss` takes them.
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
        ValueError: for tensors that do not fit.
    """
    check(inputs)
    return _Loss.apply(inputs, (loss, delta), weight, bias, target, mean, std, *flat(inputs))


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: StackInputs, options: tuple[str, float], *tensors: Tensor) -> tuple[Tensor, Tensor]:
        names = ("head_weight", "head_bias", "target", "target_mean", "target_std")
        head = {name: tensor.contiguous() for name, tensor in zip(names, tensors[:5], strict=True)}
        inputs, weight = with_tiles(supported(inputs)), head["head_weight"]
        pooled, _, _, saved = empty_outputs(inputs)
        linear_loss.check(pooled, weight, **{name: head[name] for name in names[1:]})
        assert inputs.tile_ptr is not None
        value, sums, slopes = linear_loss.empty_outputs(pooled, weight)
        num_terms = (inputs.tile_ptr.shape[0] - 1) * forward_plan(inputs, gpu(pooled.device)).warps
        terms = torch.empty(num_terms, 2, dtype=torch.double, device=pooled.device)
        numbers = {"num_targets": weight.shape[0], "kind": LOSSES.index(options[0]), "delta": options[1]}
        launch_forward(inputs, pooled, saved, {**head, "slopes": slopes, "terms": terms}, loss=True, **numbers)
        head_sums = linear_loss.launch_ends(pooled, weight, slopes, terms, sums, value)
        ctx.mark_non_differentiable(sums)
        ctx.set_materialize_grads(False)
        ctx.lengths, ctx.options = [len(parameters) for parameters in lists_of(inputs)], inputs[NUM_TENSORS:]
        ctx.save_for_backward(saved, slopes, sums, head_sums, weight, *flat(inputs))
        return value, sums

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor | None, *_: Any) -> tuple:
        saved, slopes, sums, head_sums, weight, *tensors = ctx.saved_tensors
        if grad_loss is None:
            return (None,) * (7 + len(tensors))
        inputs = nested(tensors, ctx.lengths, ctx.options)
        needs_grad_x = ctx.needs_input_grad[7]
        gradients = empty_gradients(grad_loss, saved, needs_grad_x, *inputs)
        head = {"head_weight": weight, "slopes": slopes, "loss_sums": sums, "head_sums": head_sums, "grad_loss": grad_loss}
        grad_weight, grad_bias = torch.empty_like(weight), weight.new_empty(weight.shape[0])
        head |= {"grad_head_weight": grad_weight, "grad_head_bias": grad_bias}
        launch_backward(inputs, saved, needs_grad_x, gradients, head, loss=True, num_targets=weight.shape[0])
        grad_x, *parameters = gradients
        return None, None, grad_weight, grad_bias, None, None, None, *in_order(grad_x if needs_grad_x else None, parameters, len(tensors))
