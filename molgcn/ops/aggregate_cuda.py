"""`molgcn::aggregate` on CUDA, by `cuda/aggregate_rows.cu` and `cuda/aggregate_edges.cu`. Import this module to register it."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import torch
from torch import Tensor

from molgcn.cuda_runtime.kernel import Kernel
from molgcn.cuda_runtime.launch import gpu, kernel
from molgcn.cuda_runtime.structs import Header, fill
from molgcn.ops.aggregate import OPERATOR, REDUCTIONS, AggregateInputs, check, check_backward, empty_gradients, empty_output, own_gradient
from molgcn.ops.aggregate_plan import lanes_for, plan, vector
from molgcn.ops.edge_graph import EdgeGraph
from molgcn.ops.remembered import alike, remembered

_BLOCK = 256
_DTYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}
_HEADER = Header(
    "aggregate_structs.h",
    Parameters=[
        ("const int*", "rowptr col edge"),  # the EdgeGraph, by target or by source
        ("const int*", "part_row part_begin long_row long_first"),  # its Parts
        ("const int*", "degrees"),  # rowptr by target, whose differences are the degrees; for mean
        ("const long long*", "source target"),  # the edge list
        ("const element*", "pulled own weight grad largest"),
        ("const element*", "center own_weight"),  # rows that are added to the results, and their weight
        ("element*", "result grad_weight"),
        ("real*", "sums shares"),  # sums of parts, or of all edges if added atomically; gradient of max for each tied neighbour
        ("long long", "num_edges"),
        ("int", "num_rows num_parts num_long part_size num_columns channels_per_weight blocks_per_tile"),
    ],
)


def forward(*args: Any) -> Tensor:
    """Compute the operator's output; see :mod:`molgcn.ops.aggregate`."""
    inputs = AggregateInputs(*args)
    call, inputs = RowCall.of(inputs), inputs.contiguous()
    if inputs.strategy == "edge":
        return call.by_edges(inputs, inputs.x, empty_output(*inputs))
    return call.forward(inputs.x, inputs.edge_weight, inputs.own_weight)


def backward(grad_out: Tensor, out: Tensor | None, wanted: list[bool], *args: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the gradients of x and of the weights; see :mod:`molgcn.ops.aggregate`."""
    inputs = AggregateInputs(*args)
    call = RowCall.of(inputs)
    check_backward(inputs, grad_out, out, wanted)
    inputs, grad_out = inputs.contiguous(inputs.gradients_need_x), grad_out.contiguous()
    out = None if out is None else out.contiguous()
    grad_own = own_gradient(inputs, grad_out, wanted)
    if wanted[0] and inputs.edge_weight is None and out is None and inputs.strategy != "edge":
        return call.transposed(grad_out, None, inputs.own_weight), grad_out.new_empty(0), grad_own
    grad_x, grad_weight, _ = empty_gradients(grad_out, out, wanted, *inputs)
    gathered: dict[str, Tensor] = {"pulled": grad_out}
    if out is not None:
        gathered = {"shares": call.empty_sums(inputs.num_dst), "largest": out}
        of_ties = {"pulled": inputs.x, "own": out, "grad": grad_out, "shares": gathered["shares"]}
        call.by_rows(call.graph, None, inputs.edge_weight, of_ties, ties=True)
    by_rows, of_weight = wanted[0] and inputs.strategy != "edge", wanted[1] and inputs.edge_weight is not None
    together = by_rows and of_weight and inputs.channels_per_weight == 1
    if by_rows:
        own = {"own": inputs.x} if together or out is not None else {}
        tensors = gathered | own | ({"grad_weight": grad_weight} if together else {}) | _own_rows(grad_out, inputs.own_weight)
        call.by_rows(call.graph.by_source, grad_x, inputs.edge_weight, tensors, backward=True)
    elif wanted[0]:
        grad_x = call.by_edges(inputs, grad_out, grad_x, backward=True)
    if of_weight and not together:
        call.of_weights(inputs, grad_weight, gathered | {"own": inputs.x})
    return grad_x, grad_weight, grad_own


class _Prepared(NamedTuple):
    """The launches over a graph's rows, without the tensors of a call.

    Attributes:
        arguments: The kernels' parameters except the tensors of a call.
        launches: Each kernel with its grid and its bytes of shared memory.
        num_parts: The number of parts that long rows are cut into.
        atomic: Whether the parts' sums are added to the result atomically.
    """

    arguments: ctypes.Structure
    launches: list[tuple[Kernel, int, int]]
    num_parts: int
    atomic: bool


class RowCall:
    """What calls have in common whose arguments are :func:`alike`: checked inputs, and the launches prepared for them.

    Args:
        inputs: The inputs of one of the calls. Their tensors are not kept.

    Attributes:
        graph: The graph of the edges.

    Raises:
        ValueError: If an argument does not fit. The message names it.
    """

    @classmethod
    def of(cls, inputs: AggregateInputs) -> RowCall:
        """Return what a call has in common with others, remembered with its edge list."""
        return remembered(inputs.edge_index, (cls, alike(inputs)), lambda: cls(inputs))

    def __init__(self, inputs: AggregateInputs) -> None:
        check(inputs)
        self.graph = inputs.graph
        described: list[Any] = [given.to("meta") if isinstance(given, Tensor) else given for given in inputs]
        self._inputs = AggregateInputs(*described)  # without the memory of the tensors
        self._columns, self._each = inputs.x.shape[1], inputs.channels_per_weight
        self._sums_dtype = torch.float64 if inputs.x.dtype == torch.float64 else torch.float32
        self._prepared: dict[tuple, _Prepared] = {}

    def forward(self, x: Tensor, weight: Tensor | None, own_weight: Tensor | None = None) -> Tensor:
        """Return the operator's output for contiguous tensors."""
        out = x.new_empty(self.graph.num_dst, self._columns)
        self.by_rows(self.graph, out, weight, {"pulled": x} | _own_rows(x, own_weight))
        return out

    def transposed(self, grad_out: Tensor, weight: Tensor | None, own_weight: Tensor | None = None) -> Tensor:
        """Return the gradient of x for sums and means of contiguous tensors."""
        grad_x = grad_out.new_empty(self.graph.num_src, self._columns)
        self.by_rows(self.graph.by_source, grad_x, weight, {"pulled": grad_out} | _own_rows(grad_out, own_weight), backward=True)
        return grad_x

    def empty_sums(self, num_rows: int) -> Tensor:
        """Return uninitialised memory [rows, D] in the dtype that sums are taken in."""
        return self.graph.col.new_empty(num_rows, self._columns, dtype=self._sums_dtype)

    def by_rows(
        self,
        graph: EdgeGraph,
        result: Tensor | None,
        weight: Tensor | None,
        tensors: dict[str, Tensor],
        backward: bool = False,
        ties: bool = False,
    ) -> None:
        """Compute `result` for every row of the graph. `tensors` are further parameters of the kernel, by name."""
        if graph.num_dst * self._columns == 0:
            return
        self.graph.used()
        if result is not None:
            tensors["result"] = result
        if weight is not None:
            tensors["weight"] = weight
        how = (backward, ties, "grad_weight" in tensors, "center" in tensors, self._vector(tensors))
        prepared = self._prepared.get(how) or self._prepared.setdefault(how, self._prepare(graph, *how))
        if prepared.num_parts > 0:
            tensors["sums"] = result.zero_() if prepared.atomic and result is not None else self.empty_sums(prepared.num_parts)
        arguments = fill(type(prepared.arguments).from_buffer_copy(prepared.arguments), tensors)
        for launched, grid, shared in prepared.launches:
            launched.launch(grid, _BLOCK, shared, arguments)

    def _prepare(self, graph: EdgeGraph, backward: bool, ties: bool, grad_weight: bool, own: bool, vec: int) -> _Prepared:
        lanes, edges, part_size, atomic = plan(self._inputs, graph, vec)
        parts = graph.parts(part_size) if part_size else None
        tiles, workers = -(-self._columns // (lanes * vec)), _BLOCK // (lanes * edges)
        num_parts, num_long = (0, 0) if parts is None else (parts.row.shape[0], parts.long_row.shape[0])
        blocks = -(-(num_parts + graph.num_dst) // workers)
        numbers = {
            "num_rows": graph.num_dst,
            "num_parts": num_parts,
            "num_long": num_long,
            "part_size": part_size,
            "blocks_per_tile": blocks,
        }
        order: dict[str, Any] = {"rowptr": graph.rowptr, "col": graph.col, "edge": graph.edge}
        if parts is not None:
            order |= {"part_row": parts.row, "part_begin": parts.begin, "long_row": parts.long_row, "long_first": parts.long_first}
        of_rows = {"EDGES": edges, "ATOMIC": int(atomic), "TIES": int(ties), "GRAD_WEIGHT": int(grad_weight), "OWN": int(own)}
        defines = self._defines(lanes, vec, backward) | of_rows
        device = graph.col.device
        launches = [(kernel("aggregate_rows.cu", "aggregate_rows", defines, device), tiles * blocks, 0)]
        if parts is not None and not atomic:
            shared = _BLOCK * vec * self._sums_dtype.itemsize
            launches.append((kernel("aggregate_rows.cu", "aggregate_parts", defines, device), tiles * num_long, shared))
        return _Prepared(
            fill(_HEADER.ctype()(), self._sizes() | order | numbers | {"blocks_per_tile": blocks}), launches, num_parts, atomic
        )

    def by_edges(self, inputs: AggregateInputs, pulled: Tensor, result: Tensor, backward: bool = False) -> Tensor:
        """Return the sum over each node's edges, added atomically edge by edge."""
        sums = self.empty_sums(result.shape[0]).zero_()
        vec = self._vector({"pulled": pulled})
        lanes = lanes_for(self._columns, vec, inputs.dimension_workers)
        defines = self._defines(lanes, vec, backward)
        self._by_list("aggregate_edges", inputs, self.graph.num_edges, defines, {"pulled": pulled, "sums": sums})
        return sums.to(result.dtype)

    def of_weights(self, inputs: AggregateInputs, grad_weight: Tensor, tensors: dict[str, Tensor]) -> None:
        """Compute the gradient of the weights [E, K]."""
        vec = self._vector(tensors) if self._each > 1 else 1
        defines = self._defines(lanes_for(self._each, vec), vec)
        self._by_list("aggregate_weights", inputs, grad_weight.numel(), defines, tensors | {"grad_weight": grad_weight})

    def _by_list(self, name: str, inputs: AggregateInputs, work: int, defines: dict[str, int], tensors: dict[str, Tensor]) -> None:
        if work * self._columns == 0:
            return
        self.graph.used()
        edges = inputs.edge_index.contiguous()
        source, target = (edges[1], edges[0]) if inputs.reverse else (edges[0], edges[1])
        values = self._sizes() | tensors | {"source": source, "target": target, "num_edges": edges.shape[1]}
        if inputs.edge_weight is not None:
            values["weight"] = inputs.edge_weight
        grid = min(-(-work * defines["LANES"] // _BLOCK), 16 * gpu(edges.device).num_multiprocessors)
        kernel("aggregate_edges.cu", name, defines, edges.device).launch(grid, _BLOCK, 0, fill(_HEADER.ctype()(), values))

    def _sizes(self) -> dict[str, Any]:
        return {"num_columns": self._columns, "channels_per_weight": self._each, "degrees": self.graph.rowptr}

    def _defines(self, lanes: int, vec: int, backward: bool = False) -> dict[str, int]:
        """Return the macros that all kernels need."""
        each, weighted = self._each, self._inputs.edge_weight is not None
        return {
            "DTYPE": _DTYPES[self._inputs.x.dtype],
            "WEIGHTS": 0 if not weighted else 3 if each == 1 else 1 if each == self._columns else 2,
            "REDUCE": REDUCTIONS.index(self._inputs.reduce),
            "BACKWARD": int(backward),
            "LANES": lanes,
            "VEC": vec,
        }

    def _vector(self, tensors: dict[str, Tensor]) -> int:
        """Return how many channels a thread reads at a time."""
        bits = 0
        for name, tensor in tensors.items():
            if name != "weight" or self._each == 1:
                bits |= tensor.data_ptr()
        return vector(self._columns, self._inputs.x.dtype, self._each, bits % 16)


def _own_rows(rows: Tensor, own_weight: Tensor | None) -> dict[str, Tensor]:
    """Return the parameters that add every row's own features, or gradient, to its result."""
    return {} if own_weight is None else {"center": rows, "own_weight": own_weight}


OPERATOR.implement("CUDA", forward, backward)
