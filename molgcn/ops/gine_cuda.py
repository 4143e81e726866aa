"""`molgcn::gine_aggregate` on CUDA, by `cuda/gine.cu`. Import this module to register it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from molgcn.cuda_runtime.launch import kernel
from molgcn.cuda_runtime.structs import Header
from molgcn.ops.edge_graph import EdgeGraph
from molgcn.ops.expect import aligned
from molgcn.ops.gine import OPERATOR, GineInputs, check, check_backward, empty_gradients, empty_output
from molgcn.ops.remembered import alike, remembered
from molgcn.ops.row_walk import WALK_HEADER, Prepared, RowLayout, join, walk

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
    inputs = GineInputs(*args)
    call = _Gine.of(inputs)
    out = empty_output(*inputs)
    call.sum("gine_forward", call.graph, out, {"x": aligned(inputs.x), "edges": aligned(inputs.edges)})
    return out


def backward(grad_out: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
    """Compute the gradients; see :mod:`molgcn.ops.gine`."""
    inputs = GineInputs(*args)
    call = _Gine.of(inputs)
    check_backward(grad_out, inputs)
    grad_x, grad_edges = empty_gradients(grad_out, *inputs)
    tensors = {"x": aligned(inputs.x), "edges": aligned(inputs.edges), "grad_out": aligned(grad_out), "grad_edges": grad_edges}
    call.sum("gine_backward", call.graph.by_source, grad_x, tensors)
    return grad_x, grad_edges


class _Gine:
    """What calls have in common whose inputs are :func:`alike`: the graph, the layout and the prepared kernels."""

    @classmethod
    def of(cls, inputs: GineInputs) -> _Gine:
        """Return what a call has in common with others, remembered with its edge list."""
        found = remembered(inputs.edge_index, (cls, alike(inputs)), lambda: cls(inputs))
        found.graph.used()
        return found

    def __init__(self, inputs: GineInputs) -> None:
        check(inputs)
        self.graph = EdgeGraph.of(inputs.edge_index, inputs.x.shape[0], inputs.num_targets, inputs.reverse)
        self._layout = RowLayout.of(inputs.x.dtype, 1, inputs.x.shape[1], [])
        self._prepared: dict[str, Prepared] = {}

    def sum(self, name: str, graph: EdgeGraph, sums: Tensor, tensors: dict[str, Tensor]) -> None:
        """Write the sums over every row of a graph."""
        columns = sums.shape[1]
        prepared = self._prepared.get(name) or self._prepared.setdefault(name, self._prepare(name, graph, sums.device))
        partial = sums.new_empty(prepared.pieces, columns)
        prepared.launch({**tensors, "sums": sums, "partial": partial})
        join(graph, partial, sums, columns)

    def _prepare(self, name: str, graph: EdgeGraph, device: torch.device) -> Prepared:
        parameters = _HEADER.ctype()()
        pieces = walk(parameters.order, graph)
        blocks = self._layout.blocks(graph.num_dst + pieces, device)
        return Prepared(kernel("gine.cu", name, self._layout.macros, device), blocks, parameters, pieces)


OPERATOR.implement("CUDA", forward, backward)
