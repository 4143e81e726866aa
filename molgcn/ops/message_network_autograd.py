"""The derivative of `molgcn::message_network`, by `molgcn::message_network_backward`. Import this module to register it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from molgcn.ops.expect import expect_shapes, shapes_of
from molgcn.ops.graph import Graph
from molgcn.ops.message_network import NetworkCall, Outputs


class _Network(torch.autograd.Function):
    """The autograd function of the operator. `torch.library.register_autograd` does the same, but takes 1 ms per step more on lists."""

    @staticmethod
    def forward(ctx: Any, call: NetworkCall, *variables: Tensor) -> tuple[Tensor, ...]:
        arguments = call.arguments
        with torch._C._AutoDispatchBelowAutograd():
            result, statistics, saved, of_loss = torch.ops.molgcn.message_network.default(*arguments)
        ctx.mark_non_differentiable(statistics, saved, *of_loss)
        ctx.set_materialize_grads(False)
        ctx.keeps, ctx.shapes = call.options.save_for_backward, shapes_of(call.graph)
        if call.batch_statistics or call.epilogue.targets:
            arguments = _for_backward(call).arguments
        ctx.save_for_backward(*_flat((saved, of_loss, *arguments), ctx))
        return result, statistics, saved, *of_loss

    @staticmethod
    def backward(ctx: Any, grad_result: Tensor | None, *_: Any) -> tuple:
        if grad_result is None:
            return (None,) * len(ctx.needs_input_grad)
        saved, of_loss, *arguments = _nested(ctx.saved_tensors, ctx)
        if not ctx.keeps:
            raise RuntimeError("message_network ran with save_for_backward=False; run it with True to take gradients")
        expect_shapes("message_network", arguments[: len(Graph._fields)], ctx.shapes)
        needs_grad_x = ctx.needs_input_grad[1]
        # create_graph=True: a second derivative must raise an error
        with nullcontext() if torch.is_grad_enabled() else torch._C._AutoDispatchBelowAutograd():
            backward = torch.ops.molgcn.message_network_backward.default
            grad_x, of_parameters, of_head = backward(grad_result, saved, of_loss, needs_grad_x, *arguments)
        return None, grad_x if needs_grad_x else None, *of_parameters, *of_head


def _for_backward(call: NetworkCall) -> NetworkCall:
    """Return the call without targets and, with batch statistics, without running statistics.

    Backward does not read them, and the caller may overwrite them.
    """
    parameters = call.parameters
    if call.batch_statistics:
        parameters = parameters._replace(running_means=(), running_vars=())
    return call._replace(parameters=parameters, epilogue=call.epilogue._replace(targets=()))


def _flat(arguments: Iterable[Any], ctx: Any) -> list[Tensor]:
    """Return all tensors of the arguments. `ctx` keeps what else :func:`_nested` needs to restore the arguments."""
    tensors: list[Tensor] = []
    ctx.form = []  # per argument: None for a tensor, the length of a list of tensors, or a tuple that holds any other argument
    for argument in arguments:
        if isinstance(argument, Tensor):
            tensors.append(argument)
            ctx.form.append(None)
        elif isinstance(argument, list):
            tensors += argument
            ctx.form.append(len(argument))
        else:
            ctx.form.append((argument,))
    return tensors


def _nested(tensors: Iterable[Tensor], ctx: Any) -> list[Any]:
    rest = iter(tensors)
    return [next(rest) if form is None else form[0] if isinstance(form, tuple) else list(islice(rest, form)) for form in ctx.form]


def run(call: NetworkCall) -> Outputs:
    """Run the operator, with its derivative if a gradient is wanted."""
    if torch.is_grad_enabled():
        variables = [call.graph.x, *call.parameters.tensors, *call.epilogue.head]
        if any(tensor.requires_grad for tensor in variables):
            result, statistics, saved, *of_loss = _Network.apply(call, *variables)
            return Outputs(result, statistics, saved, of_loss)
    with torch._C._AutoDispatchBelowAutograd():
        return Outputs(*torch.ops.molgcn.message_network.default(*call.arguments))


def _autograd(*args: Any) -> Outputs:
    return run(NetworkCall.of(*args))


def _no_second_order(ctx: Any, *grads: Any) -> tuple:
    raise RuntimeError("message_network has no second derivative; use backend=pyg to differentiate twice")


torch.library.impl("molgcn::message_network", "Autograd", _autograd)
torch.library.register_autograd("molgcn::message_network_backward", _no_second_order)
