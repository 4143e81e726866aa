"""The derivative of `molgcn::message_network`, by `molgcn::message_network_backward`; imported for its registrations."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from molgcn.ops.message_network import NetworkCall, Outputs


class _Network(torch.autograd.Function):
    """The operator's derivative. `torch.library.register_autograd` does the same, but spends a millisecond a step on lists of tensors."""

    @staticmethod
    def forward(ctx: Any, call: NetworkCall, *variables: Tensor) -> tuple[Tensor, ...]:
        arguments = call.arguments
        with torch._C._AutoDispatchBelowAutograd():
            result, statistics, saved, of_loss = torch.ops.molgcn.message_network.default(*arguments)
        ctx.mark_non_differentiable(statistics, saved, *of_loss)
        ctx.set_materialize_grads(False)
        ctx.keeps = call.options.save_for_backward
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
        needs_grad_x = ctx.needs_input_grad[1]
        # create_graph: differentiating it again is an error
        with nullcontext() if torch.is_grad_enabled() else torch._C._AutoDispatchBelowAutograd():
            backward = torch.ops.molgcn.message_network_backward.default
            grad_x, of_parameters, of_head = backward(grad_result, saved, of_loss, needs_grad_x, *arguments)
        return None, grad_x if needs_grad_x else None, *of_parameters, *of_head


def _for_backward(call: NetworkCall) -> NetworkCall:
    """The call without what backward does not read and the caller may overwrite: running statistics of a batch in training, targets."""
    parameters = call.parameters
    if call.batch_statistics:
        parameters = parameters._replace(running_means=(), running_vars=())
    return call._replace(parameters=parameters, epilogue=call.epilogue._replace(targets=()))


def _flat(arguments: Iterable[Any], ctx: Any) -> list[Tensor]:
    """All tensors among the arguments; `ctx` keeps what :func:`_nested` needs beside them."""
    tensors: list[Tensor] = []
    ctx.form = []  # of each argument: None for a tensor, the length of a list of tensors, or a tuple of what it is itself
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
    """The operator, with its derivative where one is wanted."""
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
