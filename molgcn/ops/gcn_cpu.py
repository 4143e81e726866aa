"""Graph convolutions on the CPU by the C++ extension `molgcn._cpu`, which takes tiles of molecules through all layers."""

from __future__ import annotations

import torch
from torch import Tensor

import molgcn._cpu as _cpu
from molgcn.ops.expect import aligned
from molgcn.ops.gcn_network import GcnCall, Parameters, empty_gradients
from molgcn.ops.layer_network.implementation import Outputs
from molgcn.ops.layer_network.program import POOLS
from molgcn.ops.reused_memory import reused_empty

_FORWARD = {torch.float32: _cpu.gcn_network_forward_float32, torch.float64: _cpu.gcn_network_forward_float64}
_BACKWARD = {torch.float32: _cpu.gcn_network_backward_float32, torch.float64: _cpu.gcn_network_backward_float64}
_NORMS = (None, "batch", "layer")


def saved_numbers(call: GcnCall) -> int:
    """Return how many numbers of x's dtype forward keeps for backward.

    Only batch norm in training keeps anything: the norms' inputs, in rows of a multiple of 16. Backward computes everything else
    again.
    """
    if not call.batch_statistics:
        return 0
    return call.network.num_norms * _stride(call) * (call.graph.num_nodes * (2 if call.network.residual else 1) + 2)


def _stride(call: GcnCall) -> int:
    return -(-call.network.hidden_channels // 16) * 16


def forward(call: GcnCall) -> Outputs:
    """Return the outputs of a call that has been checked."""
    x, hidden = call.graph.x, call.network.hidden_channels
    saved = reused_empty(saved_numbers(call), x.dtype)  # the passes need this memory anyway, between the layers
    statistics = x.new_empty(2, call.network.num_norms if call.batch_statistics else 0, hidden)
    pooled, tensors = x.new_empty(call.graph.num_graphs, hidden), contiguous(call, saved)
    _FORWARD[x.dtype](network_arguments(call, tensors), [tensor.data_ptr() for tensor in (pooled, *statistics)])
    if not call.options.save_for_backward:
        return Outputs(pooled, statistics, saved.new_empty(0))
    if hidden != _stride(call):  # vectors may be narrower than a row's padding, and an output is all written
        saved.view(-1, _stride(call))[:, hidden:] = 0
    return Outputs(pooled, statistics, saved)


def backward(call: GcnCall, grad_pooled: Tensor, saved: Tensor, grad_x: bool) -> tuple[Tensor, Parameters]:
    """Return the gradients of x, which is [0, 0] if it is not wanted, and of the parameters."""
    tensors, grad_pooled, x = contiguous(call, aligned(saved, 64)), grad_pooled.contiguous(), call.graph.x
    of_x = x.new_empty(x.shape if grad_x else (0, 0))
    blocks, gradients = empty_gradients(call)
    _BACKWARD[x.dtype](network_arguments(call, tensors), [tensor.data_ptr() for tensor in (grad_pooled, of_x, *blocks)])
    return of_x, gradients


def contiguous(call: GcnCall, saved: Tensor) -> list[Tensor]:
    """Return all tensors that C++ reads, contiguous and in its order. They must outlive the call."""
    graph, parameters = call.graph, call.parameters
    of_batch = [graph.x, graph.ptr, graph.rowptr, graph.col, saved, saved if graph.counts is None else graph.counts]
    return [tensor.contiguous() for tensors in (of_batch, *parameters) for tensor in tensors]


def network_arguments(call: GcnCall, tensors: list[Tensor]) -> _cpu.NetworkArguments:
    """Return the addresses and numbers in the order of `Arguments` in cpu/gcn_network.cpp."""
    graph, network, options = call.graph, call.network, call.options
    addresses = [tensor.data_ptr() for tensor in tensors]
    ends = network.residual, network.add_self_loops, network.last_activation
    if graph.counts is None:
        addresses[5] = 0
    return _cpu.NetworkArguments(
        (
            graph.num_graphs,
            graph.num_nodes,
            graph.col.shape[0],
            network.in_channels,
            network.hidden_channels,
            network.num_layers,
            network.num_norms,
            torch.get_num_threads(),
            tensors[4].numel() * tensors[4].element_size(),
        ),
        (POOLS.index(network.pool), _NORMS.index(network.norm), *ends, options.training),
        (network.dropout, network.eps, network.momentum),
        int(call.seed) if call.dropout_rate > 0 else 0,
        addresses,
    )
