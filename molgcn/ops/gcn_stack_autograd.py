"""The derivative of `molgcn::gcn_stack`, by `molgcn::gcn_stack_backward`; imported for its registrations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from molgcn.ops.gcn_stack import StackInputs

_FIRST_LIST, NUM_TENSORS = (StackInputs._fields.index(name) for name in ("weights", "pool"))


class _Stack(torch.autograd.Function):
    """The operator's derivative. `torch.library.register_autograd` does the same, but spends a millisecond a step on lists of tensors."""

    @staticmethod
    def forward(ctx: Any, inputs: StackInputs, *tensors: Tensor | None) -> tuple[Tensor, ...]:
        with torch._C._AutoDispatchBelowAutograd():
            outputs = torch.ops.molgcn.gcn_stack.default(*inputs)
        _, means, variances, saved = outputs
        ctx.mark_non_differentiable(means, variances, saved)
        ctx.set_materialize_grads(False)
        ctx.num_inputs = len(tensors)
        if inputs.batch_statistics:  # backward does without the running ones, which the caller may overwrite
            inputs = inputs._replace(running_means=[], running_vars=[])
        ctx.lengths = [len(parameters) for parameters in lists_of(inputs)]
        ctx.options = inputs[NUM_TENSORS:]
        ctx.save_for_backward(saved, *flat(inputs))
        return outputs

    @staticmethod
    def backward(ctx: Any, grad_pooled: Tensor | None, *_: Any) -> tuple:
        if grad_pooled is None:
            return (None,) * (1 + ctx.num_inputs)
        saved, *tensors = ctx.saved_tensors
        inputs = nested(tensors, ctx.lengths, ctx.options)
        if not inputs.save_for_backward:
            raise RuntimeError("gcn_stack ran with save_for_backward=False; run it with True to take gradients")
        needs_grad_x = ctx.needs_input_grad[1]
        arguments = (grad_pooled, saved, needs_grad_x, *inputs)
        if torch.is_grad_enabled():  # create_graph: differentiating it again is an error
            grad_x, *parameters = torch.ops.molgcn.gcn_stack_backward.default(*arguments)
        else:
            with torch._C._AutoDispatchBelowAutograd():
                grad_x, *parameters = torch.ops.molgcn.gcn_stack_backward.default(*arguments)
        return None, *in_order(grad_x if needs_grad_x else None, parameters, ctx.num_inputs)


def in_order(grad_x: Tensor | None, parameters: Sequence[list[Tensor]], count: int) -> tuple[Tensor | None, ...]:
    """Gradients of the `count` tensors that :func:`flat` lists."""
    gradients = [grad_x, *(None,) * (_FIRST_LIST - 1), *(tensor for tensors in parameters for tensor in tensors)]
    return *gradients, *(None,) * (count - len(gradients))


def lists_of(inputs: StackInputs) -> tuple[list[Tensor], ...]:
    """The parameters and statistics."""
    i = inputs
    return i.weights, i.biases, i.norm_weights, i.norm_biases, i.running_means, i.running_vars


def flat(inputs: StackInputs) -> list[Tensor | None]:
    """All tensors one after the other."""
    tensors: list[Tensor | None] = [inputs.x, inputs.ptr, inputs.rowptr, inputs.col, inputs.tile_ptr]
    for parameters in lists_of(inputs):
        tensors += parameters
    tensors += (inputs.seed, inputs.counts)
    return tensors


def nested(tensors: list[Tensor | None], lengths: list[int], options: tuple) -> StackInputs:
    """The inverse of :func:`flat`."""
    lists, start = [], _FIRST_LIST
    for length in lengths:
        lists.append(tensors[start : start + length])
        start += length
    return StackInputs(*tensors[:_FIRST_LIST], *lists, *tensors[start:], *options)  # type: ignore[arg-type]


def run(inputs: StackInputs) -> tuple[Tensor, ...]:
    """The operator, with its derivative where one is wanted."""
    if torch.is_grad_enabled():
        tensors = flat(inputs)
        if any(tensor is not None and tensor.requires_grad for tensor in tensors):
            return _Stack.apply(inputs, *tensors)
    with torch._C._AutoDispatchBelowAutograd():
        return torch.ops.molgcn.gcn_stack.default(*inputs)


def _autograd(*args: Any) -> tuple[Tensor, ...]:
    return run(StackInputs(*args))


def _no_second_order(ctx: Any, *grads: Any) -> tuple:
    raise RuntimeError("gcn_stack has no second derivative; use backend=pyg to differentiate twice")


torch.library.impl("molgcn::gcn_stack", "Autograd", _autograd)
torch.library.register_autograd("molgcn::gcn_stack_backward", _no_second_order)
