"""`molgcn::attention` on CUDA, by `cuda/attention_forward.cu` and `cuda/attention_backward.cu`. Import this module to register it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from molgcn.cuda_runtime.launch import kernel
from molgcn.cuda_runtime.structs import Header
from molgcn.ops.attention import OPERATOR, AttentionInputs, check, check_backward, empty_gradients, empty_outputs
from molgcn.ops.edge_graph import EdgeGraph
from molgcn.ops.expect import aligned
from molgcn.ops.remembered import alike, remembered
from molgcn.ops.row_walk import WALK_HEADER, Prepared, RowLayout, join, walk
from molgcn.ops.self_loops import graph_with_loops

_HEADER = Header(
    "attention_structs.h",
    uses=WALK_HEADER,
    Parameters=[
        ("Order", "order"),
        ("const real*", "source target edges att"),  # see AttentionInputs
        ("int", "source_stride target_stride num_targets"),
        ("real*", "out softmax"),  # [N, width], [N, HEADS, 2]: largest score, reciprocal of the sum
        ("const real*", "grad_out"),
        ("real*", "nodes"),  # [N, HEADS]: Node
        ("real*", "grad_source grad_target grad_edges grad_scores"),  # grad_scores [E + loops, HEADS]
        ("real*", "grad_att"),  # [groups of the grid, width]
        ("real*", "partial partial_softmax"),  # [pieces, partial_stride], [pieces, HEADS, 2]: largest score, sum
        ("int", "partial_stride"),
        ("const uint64*", "seed"),
        ("uint32", "threshold"),
        ("double", "negative_slope kept_scale"),
    ],
)
_FORWARD, _BACKWARD = "attention_forward.cu", "attention_backward.cu"


class _Attention:
    """What calls have in common whose inputs are :func:`alike`: the graph, the layout and the prepared kernels."""

    @classmethod
    def of(cls, inputs: AttentionInputs) -> _Attention:
        """Return what a call has in common with others, remembered with its edge list."""
        return remembered(inputs.edge_index, (cls, alike(inputs)), lambda: cls(inputs))

    def __init__(self, inputs: AttentionInputs) -> None:
        check(inputs)
        source, together = inputs.source, inputs.targets is None
        self._graph = graph_with_loops(inputs.edge_index, source.shape[0], inputs.num_targets, inputs.num_loops, inputs.reverse)
        self._source_stride, self._target_stride = source.shape[1], source.shape[1] if together else inputs.num_scores
        multiples = [self._source_stride]
        if inputs.att is not None:
            multiples += [self._target_stride, inputs.target_offset if together else 0]
        self._device, self._prepared = source.device, dict[str, Prepared]()
        self.layout = RowLayout.of(source.dtype, inputs.heads, inputs.channels, multiples)
        self.partial_stride = -(-inputs.target_offset // 4) * 4

    @property
    def graph(self) -> EdgeGraph:
        """The graph, which the current stream is going to use."""
        self._graph.used()
        return self._graph

    def prepared(self, inputs: AttentionInputs, graph: EdgeGraph, source: str, name: str, most: int = 64) -> Prepared:
        """Return a kernel with its arguments for the rows of a graph, prepared once."""
        return self._prepared.get(name) or self._prepared.setdefault(name, self._prepare(inputs, graph, source, name, most))

    def _prepare(self, inputs: AttentionInputs, graph: EdgeGraph, source: str, name: str, most: int) -> Prepared:
        options = {"V2": inputs.att is not None, "EDGES": inputs.edges is not None, "DROPOUT": inputs.dropout > 0}
        macros = {**self.layout.macros, **{option: int(chosen) for option, chosen in options.items()}}
        arguments = _HEADER.ctype()(
            source_stride=self._source_stride,
            target_stride=self._target_stride,
            partial_stride=self.partial_stride,
            num_targets=inputs.num_targets,
            negative_slope=inputs.negative_slope,
            kept_scale=1 / (1 - inputs.dropout) if inputs.dropout < 1 else 0.0,
            threshold=min(int(inputs.dropout * 2**32), 2**32 - 1),
        )
        pieces = walk(arguments.order, graph)
        rows = arguments.order.num_long if name == "attention_join_softmax" else graph.num_dst + pieces
        return Prepared(kernel(source, name, macros, self._device), self.layout.blocks(rows, self._device, most), arguments, pieces)


def _prepared(args: tuple) -> tuple[_Attention, AttentionInputs, dict[str, Tensor]]:
    """Return what the call has in common with others, its inputs, and those of them that every kernel reads, ready for vector loads."""
    inputs = AttentionInputs(*args)
    call = _Attention.of(inputs)
    source, targets, edges, att = (None if tensor is None else aligned(tensor) for tensor in inputs[:4])
    assert source is not None
    given = {"source": source, "target": _of_targets(inputs, source, targets), "edges": edges, "att": att, "seed": inputs.seed}
    return call, inputs, {name: tensor for name, tensor in given.items() if tensor is not None}


def _of_targets(inputs: AttentionInputs, source: Tensor, targets: Tensor | None) -> Tensor:
    """Return the targets' terms: `targets`, or their columns of `source` if `targets` is None."""
    return source.narrow(1, inputs.target_offset, inputs.num_scores) if targets is None else targets


def forward(*args: Any) -> tuple[Tensor, Tensor]:
    """Compute the operator's outputs; see :mod:`molgcn.ops.attention`."""
    call, inputs, tensors = _prepared(args)
    new, graph = inputs.source.new_empty, call.graph
    out, softmax = tensors["out"], tensors["softmax"] = empty_outputs(*inputs)
    rows = call.prepared(inputs, graph, _FORWARD, "attention_forward")
    if rows.pieces > 0:
        tensors |= {"partial": new(rows.pieces, inputs.width), "partial_softmax": new(rows.pieces, inputs.heads, 2)}
    rows.launch(tensors)
    if rows.pieces > 0:
        call.prepared(inputs, graph, _FORWARD, "attention_join_softmax").launch(tensors)
    return out, softmax


def backward(grad_out: Tensor, out: Tensor, softmax: Tensor, *args: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute the gradients; see :mod:`molgcn.ops.attention`."""
    call, inputs, tensors = _prepared(args)
    new, graph, by_source = inputs.source.new_empty, call.graph, call.graph.by_source
    rows, is_v1 = inputs.num_targets, inputs.att is None
    check_backward(grad_out, out, softmax, inputs)
    gradients = grad_source, grad_targets, grad_edges, grad_att = empty_gradients(grad_out, out, softmax, *inputs)
    of_source = inputs.target_offset
    of_targets = _of_targets(inputs, grad_source, None if inputs.targets is None else grad_targets)
    used = of_source + (inputs.num_scores if inputs.targets is None else 0)
    if used < grad_source.shape[1]:
        grad_source[:, used:].zero_()
    if inputs.num_loops > 0 and inputs.edges is not None:
        grad_edges.zero_()  # the backward does not write to the edges that the added self-loops replace
    scores = grad_edges if is_v1 and inputs.edges is not None else new(inputs.num_entries, inputs.heads)
    tensors |= {"grad_out": aligned(grad_out), "out": aligned(out), "softmax": aligned(softmax), "nodes": new(rows, inputs.heads, 4)}
    tensors |= {"grad_source": grad_source, "grad_target": of_targets, "grad_edges": grad_edges, "grad_scores": scores}
    call.prepared(inputs, graph, _BACKWARD, "attention_prepare").launch(tensors)

    sources = call.prepared(inputs, by_source, _BACKWARD, "attention_sources")
    tensors["partial"] = new(sources.pieces, call.partial_stride)
    sources.launch(tensors)
    join(by_source, tensors["partial"], grad_source, of_source)

    targets = call.prepared(inputs, graph, _BACKWARD, "attention_targets", most=64 if is_v1 else 8)
    groups = targets.blocks // call.layout.head_blocks * call.layout.groups
    tensors |= {"partial": new(targets.pieces, call.partial_stride), "grad_att": new(groups, 0 if is_v1 else inputs.width)}
    targets.launch(tensors)
    join(graph, tensors["partial"], of_targets, inputs.num_scores)
    if not is_v1:
        torch.sum(tensors["grad_att"].view(-1, inputs.heads, inputs.channels), 0, out=grad_att)
    return gradients


OPERATOR.implement("CUDA", forward, backward)
