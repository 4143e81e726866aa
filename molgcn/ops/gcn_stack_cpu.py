"""`molgcn::gcn_stack` on the CPU, by the C++ extension `molgcn._cpu`; imported for its registrations."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import molgcn._cpu as _cpu
from molgcn.ops.expect import expect
from molgcn.ops.gcn_stack import POOLS, StackInputs, empty_outputs, empty_saved, register_saved_size
from molgcn.ops.gcn_stack_check import check, check_backward

_NORMS = (None, "batch", "layer")
_FORWARD = {torch.float32: _cpu.gcn_stack_forward_float32, torch.float64: _cpu.gcn_stack_forward_float64}
_BACKWARD = {torch.float32: _cpu.gcn_stack_backward_float32, torch.float64: _cpu.gcn_stack_backward_float64}
STRATEGIES = ("auto", "stack")


def saved_bytes(inputs: StackInputs) -> int:
    """Batch norm in training keeps the norms' inputs, rows rounded up to 64 bytes; everything else is computed again in backward."""
    if not inputs.batch_statistics:
        return 0
    itemsize = inputs.x.dtype.itemsize
    stride = (inputs.hidden_channels * itemsize + 63) // 64 * 64
    return inputs.num_norms * stride * (inputs.x.shape[0] * (2 if inputs.residual else 1) + 2)


register_saved_size("cpu", saved_bytes)


@torch.library.impl("molgcn::gcn_stack", "CPU")
def _forward(*args: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    inputs = StackInputs(*args)
    check(inputs)
    outputs = empty_outputs(inputs)
    pooled, means, variances, saved = outputs
    if inputs.batch_statistics and not inputs.save_for_backward:  # the passes hand the layers on through memory all the same
        saved = empty_saved(inputs._replace(save_for_backward=True))
    run, tensors = _implementation(_FORWARD, inputs), contiguous(inputs, saved)
    run(stack_arguments(inputs, tensors), (pooled.data_ptr(), means.data_ptr(), variances.data_ptr()))
    return outputs


@torch.library.impl("molgcn::gcn_stack_backward", "CPU")
def _backward(grad_pooled: Tensor, saved: Tensor, needs_grad_x: bool, *args: Any) -> tuple[Tensor, list, list, list, list]:
    inputs = StackInputs(*args)
    expect("gcn_stack", "grad_pooled", grad_pooled, (inputs.num_graphs, inputs.hidden_channels), inputs.x)
    check_backward(saved, saved_bytes(inputs), inputs)
    saved = saved if saved.data_ptr() % 64 == 0 else saved.clone()  # of a hook of saved tensors, whose memory lies anywhere
    run, tensors = _implementation(_BACKWARD, inputs), contiguous(inputs, saved)
    grad_pooled, x = grad_pooled.contiguous(), inputs.x
    grad_x = x.new_empty(x.shape if needs_grad_x else (0, 0))
    blocks, gradients = empty_parameter_gradients(inputs)
    run(stack_arguments(inputs, tensors), [tensor.data_ptr() for tensor in (grad_pooled, grad_x, *blocks)])
    return grad_x, *gradients


def empty_parameter_gradients(
    inputs: StackInputs,
) -> tuple[tuple[Tensor, ...], tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]]]:
    """Uninitialised gradients of weights, biases, norm_weights and norm_biases, and the blocks of memory that C++ writes them in."""
    x, hidden, layers, norms = inputs.x, inputs.hidden_channels, inputs.num_layers, inputs.num_norms
    first = x.new_empty(inputs.weights[0].shape)
    others, biases = x.new_empty(layers - 1, hidden, hidden), x.new_empty(layers, hidden)  # one piece of memory each, which takes less time
    norm_weights, norm_biases = x.new_empty(norms, hidden), x.new_empty(norms, hidden)
    gradients = [first, *others.unbind()], list(biases.unbind()), list(norm_weights.unbind()), list(norm_biases.unbind())
    return (first, others, biases, norm_weights, norm_biases), gradients


def _implementation(table: dict[torch.dtype, Any], inputs: StackInputs) -> Any:
    run = table.get(inputs.x.dtype)
    if run is None:
        raise TypeError(f"gcn_stack: the CPU computes in float32 or float64, not {inputs.x.dtype}; convert x and the parameters")
    if inputs.folded:
        raise ValueError("gcn_stack: the CPU does not take a folded batch; give a batch that is not folded")
    if inputs.strategy not in STRATEGIES:
        raise ValueError(f"gcn_stack: strategy={inputs.strategy} is for CUDA; on the CPU use {' or '.join(STRATEGIES)}")
    return run


def contiguous(inputs: StackInputs, saved: Tensor) -> list[Tensor]:
    """All tensors that C++ reads, in its order; they must outlive the call."""
    tensors = [inputs.x, inputs.ptr, inputs.rowptr, inputs.col, saved, saved if inputs.counts is None else inputs.counts]
    for parameters in inputs[5:11]:
        tensors += parameters
    return [tensor.contiguous() for tensor in tensors]


def stack_arguments(inputs: StackInputs, tensors: list[Tensor]) -> _cpu.StackArguments:
    """Addresses and numbers in the order of `Arguments` in cpu/gcn_stack.cpp."""
    num_nodes, in_channels = inputs.x.shape
    addresses = [tensor.data_ptr() for tensor in tensors]
    if inputs.counts is None:
        addresses[5] = 0
    return _cpu.StackArguments(
        (
            inputs.num_graphs,
            num_nodes,
            inputs.col.shape[0],
            in_channels,
            inputs.hidden_channels,
            inputs.num_layers,
            inputs.num_norms,
            torch.get_num_threads(),
            tensors[4].numel(),
        ),
        (
            POOLS.index(inputs.pool),
            _NORMS.index(inputs.norm),
            inputs.residual,
            inputs.add_self_loops,
            inputs.last_activation,
            inputs.training,
        ),
        (inputs.dropout, inputs.eps, inputs.momentum),
        int(inputs.seed) if inputs.dropout_rate > 0 else 0,
        addresses,
    )
