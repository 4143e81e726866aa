"""`molgcn::gcn_stack` on the CPU, by the C++ extension `molgcn._cpu`; imported for its registrations."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import molgcn._cpu as _cpu
from molgcn.ops.gcn_stack import POOLS, StackInputs, empty_gradients, empty_outputs, empty_saved, keeps

_NORMS = (None, "batch", "layer")
_FORWARD = {torch.float32: _cpu.gcn_stack_forward_float32, torch.float64: _cpu.gcn_stack_forward_float64}
_BACKWARD = {torch.float32: _cpu.gcn_stack_backward_float32, torch.float64: _cpu.gcn_stack_backward_float64}
STRATEGIES = ("auto", "stack")


def _saved_bytes(inputs: StackInputs) -> int:
    """Batch norm in training keeps the norms' inputs, rows rounded up to 64 bytes; everything else is computed again in backward."""
    if not inputs.batch_statistics:
        return 0
    itemsize = inputs.x.dtype.itemsize
    stride = (inputs.hidden_channels * itemsize + 63) // 64 * 64
    return inputs.num_norms * stride * (inputs.x.shape[0] * (2 if inputs.residual else 1) + 2)


keeps("cpu", _saved_bytes)


@torch.library.impl("molgcn::gcn_stack", "CPU")
def _forward(*args: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    inputs = _supported(StackInputs(*args))
    outputs = empty_outputs(inputs)
    pooled, means, variances, saved = outputs
    if inputs.batch_statistics and not inputs.save_for_backward:  # the passes hand the layers on through memory all the same
        saved = empty_saved(inputs._replace(save_for_backward=True))
    _FORWARD[inputs.x.dtype](_arguments(inputs, saved), [tensor.data_ptr() for tensor in (pooled, means, variances)])
    return outputs


@torch.library.impl("molgcn::gcn_stack_backward", "CPU")
def _backward(grad_pooled: Tensor, saved: Tensor, needs_grad_x: bool, *args: Any) -> tuple[Tensor, list, list, list, list]:
    inputs = _supported(StackInputs(*args))
    grad_pooled = grad_pooled.contiguous()
    gradients = empty_gradients(grad_pooled, saved, needs_grad_x, *args)
    grad_x, *parameters = gradients
    ends = [grad_pooled.data_ptr(), grad_x.data_ptr() if needs_grad_x else 0]
    _BACKWARD[inputs.x.dtype](_arguments(inputs, saved), ends, [_addresses(tensors) for tensors in parameters])
    return gradients


def _supported(inputs: StackInputs) -> StackInputs:
    if inputs.x.dtype not in _FORWARD:
        raise TypeError(f"gcn_stack: the CPU computes in float32 or float64, not {inputs.x.dtype}; convert x and the parameters")
    if inputs.strategy not in STRATEGIES:
        raise ValueError(f"gcn_stack: strategy={inputs.strategy} is for CUDA; on the CPU use {' or '.join(STRATEGIES)}")
    return StackInputs(*(_contiguous(value) for value in inputs))


def _contiguous(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [tensor.contiguous() for tensor in value]
    return value.contiguous() if isinstance(value, Tensor) else value


def _addresses(tensors: list[Tensor]) -> list[int]:
    return [tensor.data_ptr() for tensor in tensors]


def _arguments(inputs: StackInputs, saved: Tensor) -> _cpu.StackArguments:
    """Addresses and numbers in the order of `Arguments` in cpu/gcn_stack.cpp; the tensors must outlive the call."""
    num_nodes, in_channels = inputs.x.shape
    flags = (inputs.residual, inputs.add_self_loops, inputs.last_activation, inputs.training)
    return _cpu.StackArguments(
        (
            inputs.num_graphs,
            num_nodes,
            inputs.col.shape[0],
            in_channels,
            inputs.hidden_channels,
            inputs.num_layers,
            torch.get_num_threads(),
        ),
        [
            *(tensor.data_ptr() for tensor in (inputs.x, inputs.ptr, inputs.rowptr, inputs.col, saved)),
            0 if inputs.counts is None else inputs.counts.data_ptr(),
        ],
        [_addresses(tensors) for tensors in inputs[5:11]],
        [POOLS.index(inputs.pool), _NORMS.index(inputs.norm), *map(int, flags)],
        (inputs.dropout, inputs.eps, inputs.momentum),
        int(inputs.seed) if inputs.dropout_rate > 0 else 0,
    )
