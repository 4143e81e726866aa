r"""`molgcn::layer_network`: all layers of a network and the pooling as one operator, forward and backward.

The operator is functional: running statistics are outputs, and the dropout seed is a tensor argument. Each device registers an
implementation of `molgcn::layer_network` and `molgcn::layer_network_backward`. If it keeps other values for backward than
:mod:`molgcn.ops.layer_network.passes`, it also registers how many numbers
(:func:`molgcn.ops.layer_network.implementation.register_saved_numbers`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from molgcn.ops.encode import encode
from molgcn.ops.fake import register_fake
from molgcn.ops.graph import GRAPH_SCHEMA
from molgcn.ops.head_loss import head_loss
from molgcn.ops.layer_network.call import LayerNetworkCall
from molgcn.ops.layer_network.check import check, check_end
from molgcn.ops.layer_network.implementation import (
    DIRECT,
    Gradients,
    Implementation,
    Kept,
    OfEncoders,
    Outputs,
    Passes,
    States,
    numbers_saved,
    statistics_of,
)
from molgcn.ops.layer_network.passes import gradients_of_parameters
from molgcn.ops.operator import is_eager
from molgcn.ops.transforms import refuse_transforms

_ARGUMENTS = (
    f"{GRAPH_SCHEMA}, Tensor[] parameters, Tensor[] statistics, Tensor seed, str program, bool training, str precision, "
    "bool save_for_backward, bool recompute, str strategy"
)
torch.library.define(
    "molgcn::layer_network",
    f"({_ARGUMENTS}) -> (Tensor pooled, Tensor new_statistics, Tensor saved)",
    tags=(torch.Tag.pt2_compliant_tag,),
)
torch.library.define(
    "molgcn::layer_network_backward",
    f"(Tensor grad_pooled, Tensor saved, bool grad_x, bool grad_bonds, {_ARGUMENTS}) -> "
    "(Tensor grad_x, Tensor grad_bonds, Tensor[] grad_parameters)",
    tags=(torch.Tag.pt2_compliant_tag,),
)


_LEADING = 3  # the number of arguments of _Network before the tensors


def layer_network(call: LayerNetworkCall) -> Outputs:
    """Return the outputs of :func:`encoded_network`, for a call without encoders."""
    return encoded_network(call)[0]


def encoded_network(call: LayerNetworkCall) -> tuple[Outputs, OfEncoders]:
    r"""Compute encoders, all layers, the pooling, a head and its loss; see :class:`molgcn.ops.layer_network.steps.Step` for the formula.

    A device's implementation takes what it can of these into its launches. Otherwise encoders are operators of their own,
    `molgcn::encode`, the head is PyTorch's, and head and loss are `molgcn::head_loss`.

    Args:
        call: The network and the batch; see :class:`LayerNetworkCall`. The result is differentiable once in x, in the bonds' rows, unless
            encoders map these, in encoders, in the parameters and in the head.

    Returns:
        The outputs, see :class:`Outputs`, and the new running statistics of each encoder's norm.

    Raises:
        ValueError: If a tensor's shape, dtype or device does not fit, or an option is unknown.
        UserError: If the device does not compute in the dtype of x.
        NotImplementedError: Under a transform of torch.func or forward-mode differentiation.
    """
    refuse_transforms()
    implementation = _direct(call)
    if implementation is not None:
        return _run(call, implementation)
    if call.head and not torch.compiler.is_compiling():
        check_end(call)
    if call.objective is not None:
        outputs, of_encoders = encoded_network(call._replace(head=(), objective=None))
        loss, sums = head_loss(outputs.pooled, call.head[::2], call.head[1::2], call.objective)
        return outputs._replace(pooled=loss, of_loss=[sums]), of_encoders
    if call.head:
        outputs, of_encoders = encoded_network(call._replace(head=()))
        predictions = outputs.pooled
        for number, (weight, bias) in enumerate(zip(call.head[::2], call.head[1::2], strict=True)):
            predictions = F.linear(predictions.relu() if number else predictions, weight, bias)
        return outputs._replace(pooled=predictions), of_encoders
    states = [None if inputs is None else encode(inputs) for inputs in call.encoders]
    call = call.encoded(states)._replace(encoders=(None, None))
    if torch.compiler.is_compiling():
        return Outputs(*torch.ops.molgcn.layer_network.default(*call.arguments)), statistics_of(states)
    return _run(call, _direct(call) or _OPERATOR)[0], statistics_of(states)


def _direct(call: LayerNetworkCall) -> Implementation | None:
    """Return the implementation that a call takes past PyTorch's dispatcher, or None."""
    if torch.compiler.is_compiling():
        return None
    registered = DIRECT.get(call.graph.x.device.type)
    return registered.implementation_of(call) if registered is not None and is_eager(()) else None


@register_fake("molgcn::layer_network")
def _fake(*args: Any) -> tuple[Tensor, ...]:
    call = LayerNetworkCall.of(*args)
    check(call)
    x, hidden = call.graph.x, call.program.hidden_channels
    statistics = x.new_empty(2, len(call.program.batch_norms) if call.batch_statistics else 0, hidden)
    saved = x.new_empty(numbers_saved(call)) if call.options.save_for_backward else x.new_empty(0)
    return x.new_empty(call.num_pooled, call.program.pooled_channels), statistics, saved


@register_fake("molgcn::layer_network_backward")
def _fake_backward(grad_pooled: Tensor, saved: Tensor, grad_x: bool, grad_bonds: bool, *args: Any) -> Gradients:
    call = LayerNetworkCall.of(*args)
    return empty_gradients(call, grad_x, grad_bonds)


def empty_gradients(call: LayerNetworkCall, grad_x: bool, grad_bonds: bool) -> Gradients:
    """Return memory for the gradients of x, of the bonds' rows and of the parameters. The first two are [0, 0] if not wanted.

    Gradients that are zero whatever the batch are set.
    """
    x, bonds = call.graph.x, call.graph.bonds
    of_parameters, zeros = gradients_of_parameters(call)
    zeros.zero_()
    of_bonds = x.new_empty(bonds.shape if grad_bonds and bonds is not None else (0, 0))
    return x.new_empty(x.shape if grad_x else (0, 0)), of_bonds, [*of_parameters.values()]


def _forward(call: LayerNetworkCall) -> tuple[Outputs, States]:
    with torch._C._AutoDispatchBelowAutograd():
        return Outputs(*torch.ops.molgcn.layer_network.default(*call.arguments)), (None, None)


def _backward(call: LayerNetworkCall, kept: Kept, grad_pooled: Tensor, grad_x: bool, grad_bonds: bool) -> Gradients:
    found: Gradients = torch.ops.molgcn.layer_network_backward.default(grad_pooled, kept.saved, grad_x, grad_bonds, *call.arguments)
    return found


_OPERATOR = Passes(_forward, _backward)


class _Network(torch.autograd.Function):
    """The autograd function of the operator. `torch.library.register_autograd` does the same, but takes 1 ms per step more on lists."""

    @staticmethod
    def forward(ctx: Any, implementation: Implementation, call: LayerNetworkCall, others: list[Any], *variables: Tensor | None) -> Tensor:
        outputs, of_encoders, kept, ctx.backward_of = implementation.run(call)
        others += outputs, of_encoders  # past autograd, which has nothing to do with them
        ctx.set_materialize_grads(False)
        ctx.is_operator = implementation is _OPERATOR
        ctx.save_for_backward(*kept)
        return outputs.pooled

    @staticmethod
    def backward(ctx: Any, grad_pooled: Tensor | None) -> tuple:
        needed = ctx.needs_input_grad[_LEADING:]
        if grad_pooled is None:
            return (None,) * (_LEADING + len(needed))
        kept = ctx.saved_tensors
        of_x, of_bonds, found = ctx.backward_of(kept, grad_pooled, needed)
        if torch.is_grad_enabled() and not ctx.is_operator:  # create_graph=True: a second derivative must raise an error
            of_x, of_bonds, *found = _Once.apply([of_x, of_bonds, *found], grad_pooled, *kept)
        wants_x, wants_bonds, *_ = needed
        return None, None, None, of_x if wants_x else None, of_bonds if wants_bonds else None, *found


_APPLY = super(
    torch.autograd.Function, _Network
).apply  # without a look at every tensor for transforms, which :func:`encoded_network` refuses


class _Once(torch.autograd.Function):
    """The identity of gradients that have no derivative themselves."""

    @staticmethod
    def forward(ctx: Any, gradients: list[Tensor], *_: Tensor | None) -> tuple[Tensor, ...]:
        return tuple(gradients)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        return _no_second_order(ctx, *grads)


def _run(call: LayerNetworkCall, implementation: Implementation = _OPERATOR) -> tuple[Outputs, OfEncoders]:
    """Run the operator, with its derivative if a gradient is wanted."""
    if torch.is_grad_enabled():
        variables = [call.graph.x, call.graph.bonds, *call.learnt]
        if any(tensor is not None and tensor.requires_grad for tensor in variables):
            others: list[Any] = []
            apply = _Network.apply if implementation is _OPERATOR else _APPLY
            pooled = apply(implementation, call, others, *variables)
            outputs, of_encoders = others
            return outputs._replace(pooled=pooled), of_encoders
    outputs, found, _, _ = implementation.run(call)
    return outputs, found


def _autograd(*args: Any) -> tuple[Tensor, ...]:
    return _run(LayerNetworkCall.of(*args))[0][:3]


def _no_second_order(ctx: Any, *grads: Any) -> tuple:
    raise RuntimeError("layer_network has no second derivative; use backend=reference to differentiate twice")


torch.library.impl("molgcn::layer_network", "Autograd", _autograd)
torch.library.register_autograd("molgcn::layer_network_backward", _no_second_order)
