"""`molgcn::attention` on the CPU, by the C++ extension `molgcn._cpu`. Import this module to register it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import molgcn._cpu as _cpu
from molgcn.ops.attention import OPERATOR, AttentionInputs, check, check_backward, empty_gradients, empty_outputs
from molgcn.ops.edge_graph import EdgeGraph, addresses, use_huge_pages
from molgcn.ops.self_loops import graph_with_loops

_FORWARD = {torch.float32: _cpu.attention_forward_float32, torch.float64: _cpu.attention_forward_float64}
_BACKWARD = {torch.float32: _cpu.attention_backward_float32, torch.float64: _cpu.attention_backward_float64}


def _forward(*args: Any) -> tuple[Tensor, Tensor]:
    inputs, graph = _prepared(args)
    results = empty_outputs(*inputs)
    use_huge_pages(*results)
    _FORWARD[inputs.source.dtype](*_call(inputs), _rows(graph), addresses(*results))
    return results


def _backward(grad_out: Tensor, out: Tensor, softmax: Tensor, *args: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    inputs, graph = _prepared(args)
    source, is_v1, together = inputs.source, inputs.att is None, inputs.targets is None
    check_backward(grad_out, out, softmax, inputs)
    grad_out, out, softmax = (tensor.contiguous() for tensor in (grad_out, out, softmax))
    gradients = grad_source, grad_targets, grad_edges, grad_att = empty_gradients(grad_out, out, softmax, *inputs)
    use_huge_pages(*gradients)
    grad_source[:, inputs.target_offset + (inputs.num_scores if together else 0) :].zero_()
    if inputs.num_loops > 0:
        grad_edges.zero_()  # the backward does not write to the edges that the added self-loops replace
    scores = grad_edges if is_v1 and inputs.edges is not None else source.new_empty(inputs.num_entries, inputs.heads)
    of_targets = grad_source[:, inputs.target_offset :] if together else grad_targets
    given = addresses(grad_out, out, softmax)
    written = addresses(grad_source, of_targets, grad_edges, scores, grad_att)
    _BACKWARD[source.dtype](*_call(inputs), _rows(graph), _rows(graph.by_source), given, written)
    return gradients


def _prepared(args: tuple) -> tuple[AttentionInputs, EdgeGraph]:
    """Return the checked inputs and their graph. All tensors are contiguous except edge_index, which is recognised by its identity."""
    inputs = AttentionInputs(*args)
    check(inputs)
    graph = graph_with_loops(inputs.edge_index, inputs.source.shape[0], inputs.num_targets, inputs.num_loops, inputs.reverse)
    targets, edges, att = (None if tensor is None else tensor.contiguous() for tensor in (inputs.targets, inputs.edges, inputs.att))
    return inputs._replace(source=inputs.source.contiguous(), targets=targets, edges=edges, att=att), graph


def _call(inputs: AttentionInputs) -> tuple[tuple[int, ...], tuple[int, ...], tuple[float, float], int]:
    source, targets = inputs.source, inputs.targets
    of_targets = source[:, inputs.target_offset :] if targets is None else targets
    columns = source.shape[1] if targets is None else targets.shape[1]
    sizes = (source.shape[0], inputs.num_targets, source.shape[1], columns, inputs.heads, inputs.channels, torch.get_num_threads())
    tensors = (source, of_targets, inputs.edges, inputs.att)
    seed = 0 if inputs.seed is None else int(inputs.seed) % 2**64
    pointers = tuple(0 if tensor is None else tensor.data_ptr() for tensor in tensors)
    return sizes, pointers, (inputs.negative_slope, inputs.dropout), seed


def _rows(graph: EdgeGraph) -> tuple[int, ...]:
    return addresses(graph.rowptr, graph.col, graph.edge)


OPERATOR.implement("CPU", _forward, _backward)
