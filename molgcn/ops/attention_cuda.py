"""`molgcn::attention` on CUDA, by `cuda/attention_forward.cu` and `cuda/attention_backward.cu`. Import this module to register it."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import torch
from torch import Tensor

from molgcn.cuda_runtime.launch import Kernel, kernel
from molgcn.cuda_runtime.structs import Header, fill
from molgcn.ops.attention import OPERATOR, AttentionInputs, check, empty_gradients, empty_outputs
from molgcn.ops.edge_graph import EdgeGraph
from molgcn.ops.expect import expect
from molgcn.ops.row_walk import THREADS, WALK_HEADER, RowLayout, aligned, join, walk
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


class _Prepared(NamedTuple):
    """A kernel that goes through a graph's rows, with all of its arguments except the tensors of a call.

    Attributes:
        kernel: The kernel.
        blocks: The number of blocks in its grid.
        arguments: Its parameters except the tensors of a call.
        pieces: The number of pieces that the graph's long rows are cut into.
    """

    kernel: Kernel
    blocks: int
    arguments: ctypes.Structure
    pieces: int

    def launch(self, tensors: dict[str, Tensor]) -> None:
        """Launch the kernel on tensors, given by the names of its parameters."""
        self.kernel.launch(self.blocks, THREADS, 0, fill(type(self.arguments).from_buffer_copy(self.arguments), tensors))


class _Attention:
    """One call of the operator: its graph, its layout, and the tensors that all of its kernels read."""

    def __init__(self, inputs: AttentionInputs) -> None:
        check(inputs)
        source, targets, edges, att = (None if tensor is None else aligned(tensor) for tensor in inputs[:4])
        assert source is not None
        self.inputs = inputs = inputs._replace(source=source, targets=targets, edges=edges, att=att)
        self.graph = graph_with_loops(inputs.edge_index, source.shape[0], inputs.num_targets, inputs.num_loops, inputs.reverse)
        of_targets = self.of_targets(source, targets)
        given = {"source": source, "target": of_targets, "edges": edges, "att": att, "seed": inputs.seed}
        self.tensors = {name: tensor for name, tensor in given.items() if tensor is not None}
        kind = (att is not None, edges is not None, inputs.heads, inputs.channels, inputs.negative_slope, inputs.dropout)
        self._options = (source.dtype, source.shape[1], of_targets.storage_offset(), of_targets.stride(0), kind)

    def of_targets(self, source: Tensor, targets: Tensor | None) -> Tensor:
        """Return the targets' terms: `targets`, or their columns of `source` if `targets` is None."""
        first = self.inputs.place_of_targets
        return source[:, first : first + self.inputs.num_scores] if targets is None else targets

    def new(self, *shape: int) -> Tensor:
        """Return an uninitialised tensor of the inputs' dtype and device."""
        return self.inputs.source.new_empty(shape)

    def prepared(self, graph: EdgeGraph, source: str, name: str, most: int = 64) -> _Prepared:
        """Return a kernel with its arguments for the rows of a graph, prepared once per graph."""
        key = (name, self._options)
        found = graph.prepared.get(key)
        return found or graph.prepared.setdefault(key, self._prepare(graph, source, name, most))

    def layout(self) -> RowLayout:
        """Return how the channels of a row are divided among a warp's lanes."""
        dtype, source_stride, first_target, target_stride, _ = self._options
        multiples = [source_stride] if self.inputs.att is None else [source_stride, int(first_target), target_stride]
        return RowLayout.of(dtype, self.inputs.heads, self.inputs.channels, multiples)

    def _prepare(self, graph: EdgeGraph, source: str, name: str, most: int) -> _Prepared:
        inputs, layout, device = self.inputs, self.layout(), self.inputs.source.device
        options = {"V2": inputs.att is not None, "EDGES": inputs.edges is not None, "DROPOUT": inputs.dropout > 0}
        macros = {**layout.macros, **{option: int(chosen) for option, chosen in options.items()}}
        arguments = _HEADER.ctype()(
            source_stride=inputs.source.shape[1],
            target_stride=self._options[3],
            partial_stride=self.partial_stride,
            num_targets=inputs.num_targets,
            negative_slope=inputs.negative_slope,
            kept_scale=1 / (1 - inputs.dropout) if inputs.dropout < 1 else 0.0,
            threshold=min(int(inputs.dropout * 2**32), 2**32 - 1),
        )
        pieces = walk(arguments.order, graph)
        rows = arguments.order.num_long if name == "attention_join_softmax" else graph.num_dst + pieces
        return _Prepared(kernel(source, name, macros, device), layout.blocks(rows, device, most), arguments, pieces)

    @property
    def partial_stride(self) -> int:
        """The number of columns of a piece's partial sums, a multiple of 4."""
        return -(-self.inputs.place_of_targets // 4) * 4


def forward(*args: Any) -> tuple[Tensor, Tensor]:
    """Compute the operator's outputs; see :mod:`molgcn.ops.attention`."""
    call = _Attention(AttentionInputs(*args))
    inputs = call.inputs
    out, softmax = empty_outputs(*inputs)
    tensors = {**call.tensors, "out": out, "softmax": softmax}
    rows = call.prepared(call.graph, _FORWARD, "attention_forward")
    if rows.pieces > 0:
        tensors |= {"partial": call.new(rows.pieces, inputs.width), "partial_softmax": call.new(rows.pieces, inputs.heads, 2)}
    rows.launch(tensors)
    if rows.pieces > 0:
        call.prepared(call.graph, _FORWARD, "attention_join_softmax").launch(tensors)
    return out, softmax


def backward(grad_out: Tensor, out: Tensor, softmax: Tensor, *args: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute the gradients; see :mod:`molgcn.ops.attention`."""
    call = _Attention(AttentionInputs(*args))
    inputs, by_source = call.inputs, call.graph.by_source
    rows, is_v1 = inputs.num_targets, inputs.att is None
    expect("attention", "grad_out", grad_out, (rows, inputs.width), inputs.source)
    grad_out, out, softmax = aligned(grad_out), aligned(out), softmax.contiguous()
    gradients = grad_source, grad_targets, grad_edges, grad_att = empty_gradients(grad_out, out, softmax, *inputs)
    of_source = inputs.place_of_targets
    of_targets = call.of_targets(grad_source, None if inputs.targets is None else grad_targets)
    used = of_source + (inputs.num_scores if inputs.targets is None else 0)
    if used < grad_source.shape[1]:
        grad_source[:, used:].zero_()
    if inputs.num_loops > 0 and inputs.edges is not None:
        grad_edges.zero_()  # the backward does not write to the edges that the added self-loops replace
    scores = grad_edges if is_v1 and inputs.edges is not None else call.new(inputs.num_entries, inputs.heads)
    tensors = {**call.tensors, "grad_out": grad_out, "out": out, "softmax": softmax, "nodes": call.new(rows, inputs.heads, 4)}
    tensors |= {"grad_source": grad_source, "grad_target": of_targets, "grad_edges": grad_edges, "grad_scores": scores}
    call.prepared(call.graph, _BACKWARD, "attention_prepare").launch(tensors)

    sources = call.prepared(by_source, _BACKWARD, "attention_sources")
    partial = call.new(sources.pieces, call.partial_stride)
    sources.launch({**tensors, "partial": partial})
    join(by_source, partial, grad_source, of_source)

    targets = call.prepared(call.graph, _BACKWARD, "attention_targets", most=64 if is_v1 else 8)
    partial = call.new(targets.pieces, call.partial_stride)
    layout = call.layout()
    of_groups = call.new(targets.blocks // layout.head_blocks * layout.groups, 0 if is_v1 else inputs.width)
    targets.launch({**tensors, "partial": partial, "grad_att": of_groups})
    join(call.graph, partial, of_targets, inputs.num_scores)
    if not is_v1:
        torch.sum(of_groups.view(-1, inputs.heads, inputs.channels), 0, out=grad_att)
    return gradients


OPERATOR.implement("CUDA", forward, backward)
