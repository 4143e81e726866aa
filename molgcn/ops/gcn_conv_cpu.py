"""`molgcn::gcn_conv` on the CPU, by the C++ extension `molgcn._cpu`. Import this module to register it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import molgcn._cpu as _cpu
from molgcn.ops.conv_graph import EntryWeights, graph_of
from molgcn.ops.edge_graph import use_huge_pages
from molgcn.ops.gcn_conv import OPERATOR, ConvInputs, check, check_backward, empty_gradients, empty_output

_FORWARD = {torch.float32: _cpu.conv_forward_float32, torch.float64: _cpu.conv_forward_float64}
_BACKWARD = {torch.float32: _cpu.conv_backward_float32, torch.float64: _cpu.conv_backward_float64}
_ENTRIES = {torch.float32: _cpu.conv_entries_float32, torch.float64: _cpu.conv_entries_float64}
_EDGES = {torch.float32: _cpu.conv_weight_gradient_float32, torch.float64: _cpu.conv_weight_gradient_float64}


def _forward(*args: Any) -> Tensor:
    inputs = _contiguous(args)
    out, entries = empty_output(*inputs), _entries(inputs)
    use_huge_pages(out)
    _FORWARD[inputs.x.dtype](_sizes(inputs), _tensors(inputs), entries.adjacency, out.data_ptr())
    return out


def _backward(grad_out: Tensor, wanted: list[bool], *args: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    inputs, grad_out = _contiguous(args), grad_out.contiguous()
    check_backward(grad_out, wanted, inputs)
    gradients = empty_gradients(grad_out, wanted, *inputs)
    use_huge_pages(*gradients)
    entries, sizes, tensors = _entries(inputs), _sizes(inputs), _tensors(inputs)
    addresses = (
        grad_out.data_ptr(),
        *(_address(gradient if want else None) for gradient, want in zip(gradients[:3], wanted, strict=False)),
    )
    _BACKWARD[inputs.x.dtype](sizes, tensors, entries.transposed, addresses)
    if wanted[3]:
        _edge_gradient(inputs, grad_out, entries, gradients[3].zero_())
    return gradients


def _edge_gradient(inputs: ConvInputs, grad_out: Tensor, entries: EntryWeights, grad_edges: Tensor) -> None:
    graph, dtype = entries.graph, inputs.x.dtype
    grad_entries = torch.empty_like(entries.weight)
    _ENTRIES[dtype](_sizes(inputs), _tensors(inputs), entries.adjacency, grad_out.data_ptr(), grad_entries.data_ptr())
    rowptr, target, index = graph.by_source
    _EDGES[dtype](
        graph.num_nodes,
        torch.get_num_threads(),
        graph.rows,
        _address(inputs.edge_weight),
        inputs.loop_weight,
        _address(entries.scale),
        grad_entries.data_ptr(),
        (rowptr.data_ptr(), target.data_ptr(), index.data_ptr()),
        grad_edges.data_ptr(),
    )


def _contiguous(args: tuple) -> ConvInputs:
    """Return the checked inputs. All tensors are contiguous except edge_index, which is recognised by its identity."""
    inputs = ConvInputs(*args)
    check(inputs)
    edge_weight = None if inputs.edge_weight is None else inputs.edge_weight.contiguous()
    bias = None if inputs.bias is None else inputs.bias.contiguous()
    weight = torch.eye(inputs.x.shape[1], dtype=inputs.x.dtype, device="cpu") if inputs.weight is None else inputs.weight.contiguous()
    return inputs._replace(x=inputs.x.contiguous(), weight=weight, bias=bias, edge_weight=edge_weight)


def _entries(inputs: ConvInputs) -> EntryWeights:
    graph = graph_of(inputs.edge_index, inputs.x.shape[0], inputs.add_self_loops, inputs.reverse)
    return graph.weights(inputs.edge_weight, inputs.normalize, inputs.loop_weight, inputs.x.dtype)


def _sizes(inputs: ConvInputs) -> tuple[int, int, int, int]:
    return inputs.x.shape[0], inputs.x.shape[1], inputs.out_channels, torch.get_num_threads()


def _tensors(inputs: ConvInputs) -> tuple[int, int, int]:
    return inputs.x.data_ptr(), _address(inputs.weight), _address(inputs.bias)


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


OPERATOR.implement("CPU", _forward, _backward)
