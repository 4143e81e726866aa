"""The derivative of `molgcn::aggregate`, by `molgcn::aggregate_backward`; imported for its registrations."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from molgcn.ops.aggregate import AggregateInputs
from molgcn.ops.aggregate_reference import aggregate_reference


class _Aggregate(torch.autograd.Function):
    """The operator's derivative. `torch.library.register_autograd` does the same, but takes the host twice as long."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Tensor:
        inputs = AggregateInputs(*args)
        with torch._C._AutoDispatchBelowAutograd():
            out: Tensor = torch.ops.molgcn.aggregate.default(*args)
        x = inputs.x
        x = x if inputs.gradients_need_x else x.new_empty(1, 1).expand(x.shape)  # else only the shape counts: let the values go
        ctx.save_for_backward(out if inputs.reduce == "max" else None, x, *inputs[1:3])
        ctx.options = inputs[3:]
        ctx.set_materialize_grads(False)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple:
        (grad_out,) = grads
        if grad_out is None:
            return (None,) * len(ctx.needs_input_grad)
        out, *tensors = ctx.saved_tensors
        inputs = AggregateInputs(*tensors, *ctx.options)
        wanted = [ctx.needs_input_grad[0], ctx.needs_input_grad[2]]
        found: Any
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():  # create_graph=True: second derivatives are asked for
            found = _differentiable_gradients(grad_out, wanted, inputs)
        else:
            with torch._C._AutoDispatchBelowAutograd():
                found = torch.ops.molgcn.aggregate_backward.default(grad_out, out, wanted, *inputs)
        grad_x, grad_weight = (gradient if want else None for want, gradient in zip(wanted, found, strict=True))
        return (grad_x, None, grad_weight, *[None] * len(ctx.options))


def _differentiable_gradients(grad_out: Tensor, wanted: list[bool], inputs: AggregateInputs) -> list[Tensor | None]:
    """The gradients by plain PyTorch, which can be differentiated again.

    With respect to views of the inputs: these may have been computed from each other, which is not this operator's to differentiate.
    """
    names = [name for name, want in zip(("x", "edge_weight"), wanted, strict=True) if want]
    views = {name: tensor.view_as(tensor) for name in names for tensor in [getattr(inputs, name)]}
    if "x" in views and not views["x"].requires_grad:  # the stand-in for values that do not count
        views["x"].requires_grad_()
    out = aggregate_reference(inputs._replace(**views))
    found = iter(torch.autograd.grad(out, list(views.values()), grad_out, create_graph=True, allow_unused=True))
    return [next(found) if want else None for want in wanted]


def _autograd(*args: Any) -> Tensor:
    x, weight = args[0], args[2]
    if torch.is_grad_enabled() and (x.requires_grad or (weight is not None and weight.requires_grad)):
        found: Tensor = _Aggregate.apply(*args)
        return found
    with torch._C._AutoDispatchBelowAutograd():
        return torch.ops.molgcn.aggregate.default(*args)


def _no_gradient(ctx: Any, *grads: Any) -> tuple:
    raise RuntimeError("aggregate_backward has no derivative of its own; differentiate aggregate with create_graph=True")


torch.library.impl("molgcn::aggregate", "Autograd", _autograd)
torch.library.register_autograd("molgcn::aggregate_backward", _no_gradient)
