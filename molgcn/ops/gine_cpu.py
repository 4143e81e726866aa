"""`molgcn::gine_aggregate` on the CPU, by the C++ extension `molgcn._cpu`. Import this module to register it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import molgcn._cpu as _cpu
from molgcn.ops.edge_graph import EdgeGraph, addresses, use_huge_pages
from molgcn.ops.gine import OPERATOR, GineInputs, check, check_backward, empty_gradients, empty_output

_FORWARD = {torch.float32: _cpu.gine_forward_float32, torch.float64: _cpu.gine_forward_float64}
_BACKWARD = {torch.float32: _cpu.gine_backward_float32, torch.float64: _cpu.gine_backward_float64}


def _forward(*args: Any) -> Tensor:
    inputs, graph = _prepared(args)
    out = empty_output(*inputs)
    use_huge_pages(out)
    _FORWARD[inputs.x.dtype](*_call(inputs), _rows(graph), out.data_ptr())
    return out


def _backward(grad_out: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
    inputs, graph = _prepared(args)
    check_backward(grad_out, inputs)
    grad_out = grad_out.contiguous()
    gradients = empty_gradients(grad_out, *inputs)
    use_huge_pages(*gradients)
    _BACKWARD[inputs.x.dtype](*_call(inputs), _rows(graph.by_source), *addresses(grad_out, *gradients))
    return gradients


def _prepared(args: tuple) -> tuple[GineInputs, EdgeGraph]:
    inputs = GineInputs(*args)
    check(inputs)
    graph = EdgeGraph.of(inputs.edge_index, inputs.x.shape[0], inputs.num_targets, inputs.reverse)
    return inputs._replace(x=inputs.x.contiguous(), edges=inputs.edges.contiguous()), graph


def _call(inputs: GineInputs) -> tuple[tuple[int, ...], tuple[int, ...]]:
    sizes = (inputs.x.shape[0], inputs.num_targets, inputs.x.shape[1], torch.get_num_threads())
    return sizes, addresses(inputs.x, inputs.edges)


def _rows(graph: EdgeGraph) -> tuple[int, ...]:
    return addresses(graph.rowptr, graph.col, graph.edge)


OPERATOR.implement("CPU", _forward, _backward)
