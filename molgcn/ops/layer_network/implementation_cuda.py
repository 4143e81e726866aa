"""`molgcn::layer_network` on CUDA: its passes by the kernels that the schedule names. Import this module to register it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from molgcn.errors import UserError
from molgcn.ops import encode_cuda, gcn_cuda
from molgcn.ops.encode import EncodeInputs
from molgcn.ops.expect import PLAIN, aligned, are_aligned, expect
from molgcn.ops.layer_network import kernels_cuda
from molgcn.ops.layer_network.call import LayerNetworkCall
from molgcn.ops.layer_network.check import check, check_backward, check_end
from molgcn.ops.layer_network.forms import known_form, remember_form
from molgcn.ops.layer_network.implementation import (
    DIRECT,
    AllGradients,
    Direct,
    Implementation,
    Kept,
    Outputs,
    Passes,
    States,
    register_saved_numbers,
)
from molgcn.ops.layer_network.plan_key import Key, key_of
from molgcn.ops.layer_network.planned import Planned
from molgcn.ops.running_statistics import MAX_BUFFERS
from molgcn.ops.schedule import engine_of


def _forward(call: LayerNetworkCall, kernels: str = "") -> tuple[Outputs, States]:
    check_end(call)  # what does not fit may be too large to copy
    call = _prepared(call)
    states = [None if inputs is None else encode_cuda.forward(*inputs) for inputs in call.encoders]
    call = call.encoded(states)
    check(call)
    return kernels_cuda.forward(call, kernels or engine_of(call)), states


def _backward(call: LayerNetworkCall, kept: Kept, grad_result: Tensor, grad_x: bool, grad_bonds: bool, kernels: str = "") -> AllGradients:
    call = _prepared(call)
    kernels = kernels or engine_of(call)
    check_backward(None if kept.of_loss else grad_result, kept.saved, kernels_cuda.saved_numbers(call, kernels), call)
    if kept.of_loss:
        gcn_cuda.check_loss(kernels_cuda.gcn_of(call), grad_result, kept.of_loss)
    grad_result, saved = aligned(grad_result), aligned(kept.saved, _LINE)
    of_x, of_bonds, learnt = kernels_cuda.backward(call, kernels, grad_result, saved, kept.of_loss, grad_x=grad_x, grad_bonds=grad_bonds)
    found: Sequence[Tensor | None] = learnt
    if kept.moments and call.encoders[0] is not None:
        found = [*encode_cuda.gradients_of(of_x, kept.moments[0], call.encoders[0]), *learnt]
        of_x = of_x.new_empty(0, 0)
    return of_x.contiguous(), of_bonds.contiguous(), found


EACH = Passes(_forward, _backward)
"""The implementation that plans each call by itself."""
_LINE = 128  # the bytes of a line of the cache


def implementation_of(call: LayerNetworkCall) -> Implementation | None:
    """Return the implementation of an eager call, by plans or by kernels for graph convolutions; None where the operator has to plan it.

    Plans serve calls that are captured too: sums that round otherwise, or another head, would make a resumed training differ. A captured
    prediction has no sums over molecules, and graph convolutions are then planned for exactly its shapes.
    """
    predicts = call.graph.x.is_cuda and not call.options.save_for_backward and torch.cuda.is_current_stream_capturing()
    alone = unplanned(call) if predicts else None
    planned = planned_call(call, engine_of(call)) if alone is None and call.objective is None else None
    return alone or planned or unplanned(call)


def unplanned(call: LayerNetworkCall) -> Implementation | None:
    """Return the implementation of an eager call of graph convolutions that plans each call by itself; None for any other."""
    kernels = engine_of(call)
    if kernels in gcn_cuda.ENGINES and kernels_cuda.takes_end(call, kernels) and PLAIN.issuperset(map(type, call.tensors)):
        return Passes(partial(_forward, kernels=kernels), partial(_backward, kernels=kernels))
    return None


def planned_call(call: LayerNetworkCall, kernels: str) -> Planned | None:
    """Check a call without a loss and return its computation by plans, or None where Python has to plan it, and for subclasses of tensors.

    Raises:
        ValueError: If an argument does not fit. The message names the first one.
    """
    if len(call.counters) != call.num_counted or 2 * len(call.counters) > MAX_BUFFERS:  # the caller writes the running statistics
        call = call._replace(counters=())
    tensors = call.tensors
    known = known_form(call, tensors)
    if known is None:
        if Key.of(call, kernels) is None or not PLAIN.issuperset(map(type, tensors)):
            return None
        check_call(call)
        known = remember_form(call, tensors)
    key = key_of(call, kernels, *known)
    return None if key is None else Planned(key, *known, tensors)


def check_call(call: LayerNetworkCall) -> None:
    """Check a call with encoders and counters.

    Raises:
        ValueError: If a tensor does not fit. The message names the first one.
    """
    check(call.encoded([None if inputs is None else encode_cuda.outputs_of(inputs) for inputs in call.encoders]))
    for counter in call.counters:
        expect("layer_network", "counters", counter, (), call.graph.x, torch.int64)
    for inputs, rows in zip(call.encoders, call.graph[:2], strict=True):
        if inputs is not None and (rows is None or rows.shape[0] != inputs.x.shape[0]):
            raise ValueError("layer_network: expected as many rows as their encoder has")


def saved_numbers(call: LayerNetworkCall) -> int:
    """Return how many numbers :data:`EACH` keeps for backward."""
    return kernels_cuda.saved_numbers(call, engine_of(call))


def forward(*args: Any) -> tuple[Tensor, ...]:
    """Compute the operator's outputs; see :mod:`molgcn.ops.layer_network.operator`."""
    return _forward(LayerNetworkCall.of(*args))[0][:3]


def backward(grad_pooled: Tensor, saved: Tensor, grad_x: bool, grad_bonds: bool, *args: Any) -> AllGradients:
    """Compute the gradients; see :mod:`molgcn.ops.layer_network.operator`."""
    return _backward(LayerNetworkCall.of(*args), Kept(saved), grad_pooled, grad_x, grad_bonds)


def _prepared(call: LayerNetworkCall) -> LayerNetworkCall:
    """Return the call with its tensors in the form that kernels read: contiguous, and values aligned to 16 bytes.

    Raises:
        UserError: If the kernels do not compute in the dtype of x.
    """
    dtype = call.graph.x.dtype
    if dtype not in (torch.float32, torch.float64):
        raise UserError(f"backend=fused on CUDA computes in float32 or float64, not {dtype}. Convert model and batch, or use backend=pyg.")
    if are_aligned([tensor for tensor in (*call.graph[:2], *call.tensors) if tensor is not None]):
        return call
    head = [aligned(tensor) for tensor in call.head]
    objective = call.objective
    if objective is not None:
        target, mean, std = map(aligned, objective[:3])
        objective = objective._replace(target=target, mean=mean, std=std)
    first, second = (None if inputs is None else _aligned(inputs) for inputs in call.encoders)
    parameters, statistics = ([aligned(tensor) for tensor in tensors] for tensors in (call.parameters, call.statistics))
    return call._replace(
        graph=call.graph.mapped(aligned),
        parameters=parameters,
        statistics=statistics,
        encoders=(first, second),
        head=head,
        objective=objective,
    )


def _aligned(inputs: EncodeInputs) -> EncodeInputs:
    return EncodeInputs.of((None if tensor is None else aligned(tensor) for tensor in inputs.tensors), inputs.options)


register_saved_numbers("cuda", saved_numbers)
DIRECT["cuda"] = Direct(implementation_of, takes_end=True)
torch.library.impl("molgcn::layer_network", "CUDA", forward)
torch.library.impl("molgcn::layer_network_backward", "CUDA", backward)
