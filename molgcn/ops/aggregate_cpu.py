"""`molgcn::aggregate` on the CPU, by the C++ extension `molgcn._cpu`. Import this module to register it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import molgcn._cpu as _cpu
from molgcn.ops.aggregate import OPERATOR, AggregateInputs, check, check_backward, empty_gradients, empty_output, own_gradient
from molgcn.ops.edge_graph import EdgeGraph, addresses, use_huge_pages

_PULL = {torch.float32: _cpu.aggregate_pull_float32, torch.float64: _cpu.aggregate_pull_float64}
_WEIGHTS = {torch.float32: _cpu.aggregate_weights_float32, torch.float64: _cpu.aggregate_weights_float64}
_PASSES = ("sum", "mean", "max", "ties", "max_backward")  # in the order of cpu/aggregate.hpp


def forward(*args: Any) -> Tensor:
    """Compute the operator's output. bfloat16 and float16 are computed in float32; see :mod:`molgcn.ops.aggregate`."""
    inputs = AggregateInputs(*args)
    check(inputs)
    wide = _widened(inputs.contiguous())
    out = empty_output(*wide)
    _pull(wide, inputs.graph, inputs.reduce, out, pulled=wide.x)
    if wide.own_weight is not None:
        out.addcmul_(wide.x, wide.own_weight)
    return out.to(inputs.x.dtype)


def backward(grad_out: Tensor, out: Tensor | None, wanted: list[bool], *args: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the gradients of x and of the weights; see :mod:`molgcn.ops.aggregate`."""
    inputs = AggregateInputs(*args)
    check(inputs)
    check_backward(inputs, grad_out, out, wanted)
    graph, dtype = inputs.graph, inputs.x.dtype
    wide = _widened(inputs.contiguous(inputs.gradients_need_x))
    grad = grad_out.to(wide.x.dtype).contiguous()
    grad_x, grad_weight, _ = empty_gradients(grad, None, wanted, *wide)
    grad_own, of_own = own_gradient(wide, grad, wanted), grad
    own: dict[str, Tensor] = {}
    if inputs.reduce == "mean":
        grad = grad / graph.rowptr.diff().clamp(min=1)[:, None]
    if out is not None:
        largest = out.contiguous() if dtype == wide.x.dtype else empty_output(*wide)
        if dtype != wide.x.dtype:  # rounding to 16 bits may have made different values equal
            _pull(wide, graph, "max", largest, pulled=wide.x)
        shares = torch.empty_like(grad)
        _pull(wide, graph, "ties", shares, pulled=wide.x, own=largest, grad=grad)
        grad, own = shares, {"own": largest}
    if wanted[0] and out is None:
        _pull(wide, graph.by_source, "sum", grad_x, pulled=grad)
    elif wanted[0]:
        _pull(wide, graph.by_source, "max_backward", grad_x, pulled=grad, own=wide.x, largest=own["own"])
    if wanted[1] and inputs.edge_weight is not None:
        _WEIGHTS[grad.dtype](*_arguments(wide, graph, grad_weight, pulled=wide.x, grad=grad, **own))
    if wanted[0] and wide.own_weight is not None:
        grad_x.addcmul_(of_own, wide.own_weight)
    return grad_x.to(dtype), grad_weight.to(dtype), grad_own.to(dtype)


def _widened(inputs: AggregateInputs) -> AggregateInputs:
    if inputs.x.dtype in _PULL:
        return inputs
    edge_weight, own_weight = (None if weight is None else weight.float() for weight in (inputs.edge_weight, inputs.own_weight))
    return inputs._replace(x=inputs.x.float(), edge_weight=edge_weight, own_weight=own_weight)


def _pull(inputs: AggregateInputs, graph: EdgeGraph, what: str, out: Tensor, **tensors: Tensor) -> None:
    """Compute every row of `out` from the edges of the same row of the graph."""
    _PULL[out.dtype](*_arguments(inputs, graph, out, **tensors), _PASSES.index(what))


def _arguments(inputs: AggregateInputs, graph: EdgeGraph, out: Tensor, **tensors: Tensor) -> tuple[tuple[int, ...], ...]:
    sizes = (graph.num_dst, inputs.x.shape[1], inputs.channels_per_weight, torch.get_num_threads())
    use_huge_pages(out)
    values = {"weight": inputs.edge_weight, **tensors, "out": out}
    given = [values.get(name) for name in ("pulled", "weight", "own", "largest", "grad", "out")]
    return sizes, addresses(graph.rowptr, graph.col, graph.edge), tuple(0 if tensor is None else tensor.data_ptr() for tensor in given)


OPERATOR.implement("CPU", forward, backward)
