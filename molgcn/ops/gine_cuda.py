"""`molgcn::gine_aggregate` on CUDA, by `cuda/gine.cu`. Import this module to register it."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from molgcn.cuda_runtime.launch import kernel
from molgcn.cuda_runtime.structs import Header, fill
from molgcn.ops.edge_graph import EdgeGraph
from molgcn.ops.expect import expect
from molgcn.ops.gine import OPERATOR, GineInputs, check, empty_gradients, empty_output
from molgcn.ops.row_walk import THREADS, WALK_HEADER, RowLayout, aligned, join, walk

_HEADER = Header(
    "gine_structs.h",
    uses=WALK_HEADER,
    Parameters=[
        ("Order", "order"),
        ("const real*", "x edges grad_out"),  # [M, D], [E, D], [N, D]
        ("real*", "sums grad_edges"),  # [num_rows, D], [E, D]
        ("real*", "partial"),  # [pieces, D]
    ],
)


def forward(*args: Any) -> Tensor:
    """Compute the operator's output; see :mod:`molgcn.ops.gine`."""
    inputs, graph = _prepared(args)
    out = empty_output(*inputs)
    _sums("gine_forward", inputs, graph, out, {})
    return out


def backward(grad_out: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
    """Compute the gradients; see :mod:`molgcn.ops.gine`."""
    inputs, graph = _prepared(args)
    expect("gine_aggregate", "grad_out", grad_out, (inputs.num_targets, inputs.x.shape[1]), inputs.x)
    grad_out = aligned(grad_out)
    grad_x, grad_edges = empty_gradients(grad_out, *inputs)
    _sums("gine_backward", inputs, graph.by_source, grad_x, {"grad_out": grad_out, "grad_edges": grad_edges})
    return grad_x, grad_edges


def _prepared(args: tuple) -> tuple[GineInputs, EdgeGraph]:
    inputs = GineInputs(*args)
    check(inputs)
    graph = EdgeGraph.of(inputs.edge_index, inputs.x.shape[0], inputs.num_targets, inputs.reverse)
    return inputs._replace(x=aligned(inputs.x), edges=aligned(inputs.edges)), graph


def _sums(name: str, inputs: GineInputs, graph: EdgeGraph, sums: Tensor, others: dict[str, Tensor]) -> None:
    rows, columns = sums.shape
    layout, parameters = RowLayout.of(inputs.x.dtype, 1, columns, []), _HEADER.ctype()()
    pieces = walk(parameters.order, graph)
    partial = sums.new_empty(pieces, columns)
    fill(parameters, {"x": inputs.x, "edges": inputs.edges, "sums": sums, "partial": partial, **others})
    blocks = layout.blocks(rows + pieces, sums.device)
    kernel("gine.cu", name, layout.macros, sums.device).launch(blocks, THREADS, 0, parameters)
    join(graph, partial, sums, columns)


OPERATOR.implement("CUDA", forward, backward)
