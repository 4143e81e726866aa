"""The derivative of `molgcn::message_network`, by `molgcn::message_network_backward`. Import this module to register it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from molgcn.ops.expect import expect_shapes, shapes_of
from molgcn.ops.graph import Graph
from molgcn.ops.message_network import Gradients, NetworkCall, Outputs
from molgcn.ops.operator import is_eager


class Implementation(NamedTuple):
    """The passes of a call as functions.

    Attributes:
        forward: Returns the outputs of a call.
        backward: Returns the gradients, given a call, the gradient of the result, what forward has kept and what it has kept of a loss, and
            whether the gradient of x is wanted.
    """

    forward: Callable[[NetworkCall], Outputs]
    backward: Callable[[NetworkCall, Tensor, Tensor, Sequence[Tensor], bool], Gradients]


_DIRECT: dict[str, Callable[[NetworkCall], Implementation]] = {}


def register_direct(device_type: str, implementation_of: Callable[[NetworkCall], Implementation]) -> None:
    """Register what returns the implementation that eager calls on plain tensors take on a type of device, past PyTorch's dispatcher."""
    _DIRECT[device_type] = implementation_of


def _forward(call: NetworkCall) -> Outputs:
    with torch._C._AutoDispatchBelowAutograd():
        return Outputs(*torch.ops.molgcn.message_network.default(*call.arguments))


def _backward(call: NetworkCall, grad_result: Tensor, saved: Tensor, of_loss: Sequence[Tensor], needs_grad_x: bool) -> Gradients:
    # create_graph=True: a second derivative must raise an error
    with nullcontext() if torch.is_grad_enabled() else torch._C._AutoDispatchBelowAutograd():
        found: Gradients = torch.ops.molgcn.message_network_backward.default(grad_result, saved, of_loss, needs_grad_x, *call.arguments)
    return found


_OPERATOR = Implementation(_forward, _backward)


class _Network(torch.autograd.Function):
    """The autograd function of the operator. `torch.library.register_autograd` does the same, but takes 1 ms per step more on lists."""

    @staticmethod
    def forward(ctx: Any, implementation: Implementation, call: NetworkCall, *variables: Tensor) -> tuple[Tensor, ...]:
        result, statistics, saved, of_loss = implementation.forward(call)
        ctx.mark_non_differentiable(statistics, saved, *of_loss)
        ctx.set_materialize_grads(False)
        ctx.keeps, ctx.implementation, ctx.shapes = call.options.save_for_backward, implementation, shapes_of(call.graph)
        if call.batch_statistics or call.epilogue.targets:
            call = _for_backward(call)
        ctx.save_for_backward(*_flat((saved, list(of_loss), *call.arguments), ctx))
        return result, statistics, saved, *of_loss

    @staticmethod
    def backward(ctx: Any, grad_result: Tensor | None, *_: Any) -> tuple:
        if grad_result is None:
            return (None,) * len(ctx.needs_input_grad)
        saved, of_loss, *arguments = _nested(ctx.saved_tensors, ctx)
        if not ctx.keeps:
            raise RuntimeError("message_network ran with save_for_backward=False; run it with True to take gradients")
        expect_shapes("message_network", arguments[: len(Graph._fields)], ctx.shapes)
        backward = _backward if torch.is_grad_enabled() else ctx.implementation.backward
        needs_grad_x = ctx.needs_input_grad[2]
        grad_x, of_parameters, of_head = backward(NetworkCall.of(*arguments), grad_result, saved, of_loss, needs_grad_x)
        return None, None, grad_x if needs_grad_x else None, *of_parameters, *of_head


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
    """Run an eager call, with its derivative if a gradient is wanted."""
    implementation_of = _DIRECT.get(call.graph.x.device.type)
    tensors = (*call.graph.tensors, *call.parameters.tensors, *call.epilogue.head, *call.epilogue.targets)
    return _run(call, _OPERATOR if implementation_of is None or not is_eager(tensors) else implementation_of(call))


def _run(call: NetworkCall, implementation: Implementation = _OPERATOR) -> Outputs:
    if torch.is_grad_enabled():
        variables = [call.graph.x, *call.parameters.tensors, *call.epilogue.head]
        if any(tensor.requires_grad for tensor in variables):
            result, statistics, saved, *of_loss = _Network.apply(implementation, call, *variables)
            return Outputs(result, statistics, saved, of_loss)
    return implementation.forward(call)


def _autograd(*args: Any) -> Outputs:
    return _run(NetworkCall.of(*args))


def _no_second_order(ctx: Any, *grads: Any) -> tuple:
    raise RuntimeError("message_network has no second derivative; use backend=pyg to differentiate twice")


torch.library.impl("molgcn::message_network", "Autograd", _autograd)
torch.library.register_autograd("molgcn::message_network_backward", _no_second_order)
