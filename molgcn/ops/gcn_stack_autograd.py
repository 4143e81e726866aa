"""The derivative of `molgcn::gcn_stack`, by `molgcn::gcn_stack_backward`; imported for its registrations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from molgcn.ops.gcn_stack import StackInputs

_NUM_TENSORS = StackInputs._fields.index("pool")  # the fields before it are tensors or lists of tensors


def _flat(inputs: StackInputs) -> tuple[list[Tensor | None], list[int | None]]:
    """All tensors one after the other, and how many belong to each list; None for what is no list."""
    fields: tuple[Any, ...] = inputs[:_NUM_TENSORS]
    lengths = [len(value) if isinstance(value, (list, tuple)) else None for value in fields]
    return [tensor for value in fields for tensor in (value if isinstance(value, (list, tuple)) else (value,))], lengths


def _nested(tensors: Iterable[Tensor | None], lengths: list[int | None], options: tuple) -> StackInputs:
    """The inverse of :func:`_flat`."""
    remaining = iter(tensors)
    fields: list[Any] = [next(remaining) if length is None else [next(remaining) for _ in range(length)] for length in lengths]
    return StackInputs(*fields, *options)


class _Stack(torch.autograd.Function):
    """The operator's derivative. `torch.library.register_autograd` does the same, but spends a millisecond a step on lists of tensors."""

    @staticmethod
    def forward(ctx: Any, lengths: list[int | None], options: tuple, *tensors: Tensor | None) -> tuple[Tensor, ...]:
        inputs = _nested(tensors, lengths, options)
        with torch._C._AutoDispatchBelowAutograd():
            outputs = torch.ops.molgcn.gcn_stack(*inputs)
        _, means, variances, saved = outputs
        ctx.mark_non_differentiable(means, variances, saved)
        ctx.set_materialize_grads(False)
        ctx.num_inputs = len(tensors)
        if inputs.batch_statistics:  # backward does without the running ones, which the caller may overwrite
            kept, lengths = _flat(inputs._replace(running_means=[], running_vars=[]))
        else:
            kept = list(tensors)
        ctx.lengths, ctx.options = lengths, options
        ctx.save_for_backward(saved, *kept)
        return outputs

    @staticmethod
    def backward(ctx: Any, grad_pooled: Tensor | None, *_: Any) -> tuple:
        if grad_pooled is None:
            return (None,) * (2 + ctx.num_inputs)
        saved, *tensors = ctx.saved_tensors
        inputs = _nested(tensors, ctx.lengths, ctx.options)
        if not inputs.save_for_backward:
            raise RuntimeError("gcn_stack ran with save_for_backward=False; run it with True to take gradients")
        needs_grad_x = ctx.needs_input_grad[2]
        grad_x, *parameters = torch.ops.molgcn.gcn_stack_backward(grad_pooled, saved, needs_grad_x, *inputs)
        gradients = [None, None, grad_x if needs_grad_x else None, *(None,) * 4, *(tensor for tensors in parameters for tensor in tensors)]
        return *gradients, *(None,) * (2 + ctx.num_inputs - len(gradients))


def _autograd(*args: Any) -> tuple[Tensor, ...]:
    tensors, lengths = _flat(StackInputs(*args))
    if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors):
        return _Stack.apply(lengths, args[_NUM_TENSORS:], *tensors)
    with torch._C._AutoDispatchBelowAutograd():
        return torch.ops.molgcn.gcn_stack(*args)


def _no_second_order(ctx: Any, *grads: Any) -> tuple:
    raise RuntimeError("gcn_stack has no second derivative; use backend=pyg to differentiate twice")


torch.library.impl("molgcn::gcn_stack", "Autograd", _autograd)
torch.library.register_autograd("molgcn::gcn_stack_backward", _no_second_order)
