"""`molgcn::message_network` on the CPU, by the C++ extension `molgcn._cpu`. Import this module to register it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

import molgcn._cpu as _cpu
from molgcn.ops.expect import aligned
from molgcn.ops.message_network import (
    Epilogue,
    Gradients,
    NetworkCall,
    Outputs,
    empty_outputs,
    empty_parameter_gradients,
    empty_saved,
    register_saved_size,
)
from molgcn.ops.message_network_check import check, check_backward
from molgcn.ops.spec import NORMS, POOLS

_FORWARD = {torch.float32: _cpu.message_network_forward_float32, torch.float64: _cpu.message_network_forward_float64}
_BACKWARD = {torch.float32: _cpu.message_network_backward_float32, torch.float64: _cpu.message_network_backward_float64}
STRATEGIES = ("auto", "tile")


def saved_bytes(call: NetworkCall) -> int:
    """Return how many bytes forward keeps for backward.

    Only batch norm in training keeps anything: the norms' inputs, in rows of a multiple of 64 bytes. Backward computes everything else
    again.
    """
    if not call.batch_statistics:
        return 0
    itemsize = call.graph.x.dtype.itemsize
    stride = (call.spec.hidden_channels * itemsize + 63) // 64 * 64
    return call.spec.num_norms * stride * (call.graph.num_nodes * (2 if call.spec.residual else 1) + 2)


def _forward(*args: Any) -> Outputs:
    call = NetworkCall.of(*args)
    check(call)
    run, head = _implementation(_FORWARD, call), call.epilogue.head
    outputs = empty_outputs(call if not head else call._replace(epilogue=Epilogue()))
    saved = outputs.saved
    if call.batch_statistics and not call.options.save_for_backward:  # the passes need this memory anyway, between the layers
        saved = empty_saved(call._replace(options=call.options._replace(save_for_backward=True)))
    tensors = contiguous(call, saved)
    run(network_arguments(call, tensors), [tensor.data_ptr() for tensor in (outputs.result, *outputs.statistics)])
    if not head:
        return outputs
    with torch.autocast("cpu", enabled=False):
        return outputs._replace(result=F.linear(outputs.result, *head))


def _backward(grad_result: Tensor, saved: Tensor, of_loss: Sequence[Tensor], needs_grad_x: bool, *args: Any) -> Gradients:
    call = NetworkCall.of(*args)
    run = _implementation(_BACKWARD, call)
    check_backward(grad_result, saved, of_loss, saved_bytes(call), call)
    tensors, grad_result, x = contiguous(call, aligned(saved, 64)), grad_result.contiguous(), call.graph.x
    grad_x = x.new_empty(x.shape if needs_grad_x else (0, 0))
    blocks, gradients = empty_parameter_gradients(call)
    run(network_arguments(call, tensors), [tensor.data_ptr() for tensor in (grad_result, grad_x, *blocks)])
    return grad_x, gradients, []


def _implementation(table: dict[torch.dtype, Any], call: NetworkCall) -> Any:
    run = table.get(call.graph.x.dtype)
    if run is None:
        raise TypeError(f"message_network: the CPU computes in float32 or float64, not {call.graph.x.dtype}; convert x and the parameters")
    if call.graph.leaves_merged:
        raise ValueError("message_network: the CPU does not take merged leaves; give a batch whose leaves are not merged")
    if call.options.strategy not in STRATEGIES:
        raise ValueError(f"message_network: strategy={call.options.strategy} is for CUDA; on the CPU use {' or '.join(STRATEGIES)}")
    if call.epilogue.targets:
        raise ValueError("message_network: on the CPU the loss is an operator of its own; use molgcn.ops.head_loss")
    return run


def contiguous(call: NetworkCall, saved: Tensor) -> list[Tensor]:
    """Return all tensors that C++ reads, contiguous and in its order. They must outlive the call."""
    graph, parameters = call.graph, call.parameters
    tensors = [graph.x, graph.ptr, graph.rowptr, graph.col, saved, saved if graph.counts is None else graph.counts]
    return [tensor.contiguous() for tensor in (*tensors, *parameters.tensors, *parameters.statistics)]


def network_arguments(call: NetworkCall, tensors: list[Tensor]) -> _cpu.NetworkArguments:
    """Return the addresses and numbers in the order of `Arguments` in cpu/message_network.cpp."""
    graph, spec, options = call.graph, call.spec, call.options
    addresses = [tensor.data_ptr() for tensor in tensors]
    if graph.counts is None:
        addresses[5] = 0
    return _cpu.NetworkArguments(
        (
            graph.num_graphs,
            graph.num_nodes,
            graph.col.shape[0],
            spec.in_channels,
            spec.hidden_channels,
            spec.num_layers,
            spec.num_norms,
            torch.get_num_threads(),
            tensors[4].numel(),
        ),
        (POOLS.index(spec.pool), NORMS.index(spec.norm), spec.residual, spec.add_self_loops, spec.last_activation, options.training),
        (spec.dropout, spec.eps, spec.momentum),
        int(call.seed) if call.dropout_rate > 0 else 0,
        addresses,
    )


register_saved_size("cpu", saved_bytes)
torch.library.impl("molgcn::message_network", "CPU", _forward)
torch.library.impl("molgcn::message_network_backward", "CPU", _backward)
