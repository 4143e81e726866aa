"""The graph of an edge list, sorted by target and by source, on the device of the list."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor

from molgcn.errors import UserError
from molgcn.ops.remembered import remembered

_MOST = 2**31 - 1  # the largest int32
_cpu = import_module("molgcn._cpu") if find_spec("molgcn._cpu") is not None else None  # built at install time where there is a compiler


class Parts(NamedTuple):
    """The long rows of a graph, cut into parts of a fixed number of edges: L long rows, P parts.

    Attributes:
        row: The row of each part, int32 [P].
        begin: The first edge of each part, int32 [P].
        long_row: The long rows, int32 [L].
        long_first: The first part of each long row, int32 [L + 1].
    """

    row: Tensor
    begin: Tensor
    long_row: Tensor
    long_first: Tensor


@dataclass
class EdgeGraph:
    """The edges of a list in compressed sparse rows, one row per target: N targets, M sources, E edges.

    The graph takes 8 bytes per edge and 4 per target. `by_source`, made when it is first read, takes 8 bytes per edge and 4 per source.
    Making either on a GPU takes about 40 bytes per edge for a moment.

    Attributes:
        rowptr: The first edge of each target, int32 [N + 1].
        col: The source of each edge, int32 [E].
        edge: The place of each edge in the list, int32 [E].
        num_src: The number of sources, M.
        longest: The largest number of edges of a target.
    """

    rowptr: Tensor
    col: Tensor
    edge: Tensor
    num_src: int
    longest: int

    @classmethod
    def of(cls, edge_index: Tensor, num_src: int, num_dst: int, reverse: bool = False) -> EdgeGraph:
        """Return the graph of an edge list. The same tensor gives the same graph again until the tensor is written to.

        A graph made earlier may be used while a CUDA graph is captured. The CUDA graph keeps the edges of that moment.

        Args:
            edge_index: The source and target of every edge, int64 [2, E], in any order.
            num_src: The number of sources, M.
            num_dst: The number of targets, N.
            reverse: Whether edges go from `edge_index[1]` to `edge_index[0]`: PyG's flow "target_to_source".

        Raises:
            IndexError: If an edge names a node that does not exist. The message names the node.
            UserError: If there are more nodes or edges than 32 bits can count, or if edge_index is new while a CUDA graph is captured.
        """
        graph = remembered(edge_index, (cls, num_src, num_dst, reverse), lambda: cls._build(edge_index, num_src, num_dst, reverse))
        graph.used()
        return graph

    @classmethod
    def _build(cls, edge_index: Tensor, num_src: int, num_dst: int, reverse: bool) -> EdgeGraph:
        rows = (num_dst, num_src) if reverse else (num_src, num_dst)
        check_edges(edge_index, *rows)
        edges = edge_index.detach().contiguous()
        source, target = (edges[1], edges[0]) if reverse else (edges[0], edges[1])
        if _cpu is not None and edges.device.type == "cpu":
            rowptr, col, place = empty_rows(num_dst, edges.shape[1])
            sizes = (edges.shape[1], num_dst, torch.get_num_threads())
            _cpu.conv_sort_edges(target.data_ptr(), source.data_ptr(), sizes, False, addresses(rowptr, col, place))
        else:
            rowptr, place = _order(target, num_dst)
            col, place = source[place].int(), place.int()
        return cls._finished(rowptr, col, place, num_src)

    @classmethod
    def _finished(cls, rowptr: Tensor, col: Tensor, edge: Tensor, num_src: int) -> EdgeGraph:
        longest = int(rowptr.diff().max()) if rowptr.shape[0] > 1 else 0  # synchronises, so that other streams may use the graph
        return cls(rowptr, col, edge, num_src, longest)

    @property
    def num_dst(self) -> int:
        """The number of targets, N."""
        return self.rowptr.shape[0] - 1

    @property
    def num_edges(self) -> int:
        """The number of edges, E."""
        return self.col.shape[0]

    @cached_property
    def by_source(self) -> EdgeGraph:
        """The same edges with one row per source: `col` has their targets, and `edge` has their places in the list."""
        _not_while_capturing(self.col)
        if _cpu is not None and self.col.device.type == "cpu":
            rowptr, col, place = empty_rows(self.num_src, self.num_edges)
            numbers = (self.num_dst, self.num_src, torch.get_num_threads())
            _cpu.conv_transpose(addresses(self.rowptr, self.col), *numbers, addresses(rowptr, col, place))
        else:
            rowptr, place = _order(self.col, self.num_src)
            nodes = torch.arange(self.num_dst, dtype=torch.int32, device=self.col.device)
            col = nodes.repeat_interleave(self.rowptr.diff(), output_size=self.num_edges)[place]
        return self._finished(rowptr, col, self.edge[place], self.num_dst)

    def parts(self, size: int) -> Parts | None:
        """Return the parts of the rows that have more than `size` edges, or None if there are no such rows. They are made once."""
        if self.longest <= size:
            return None
        if size not in self._parts:
            _not_while_capturing(self.col)
            degree = self.rowptr.diff()
            long_row = (degree > size).nonzero()[:, 0]
            counts = (degree[long_row] + (size - 1)) // size
            first = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
            row = long_row.repeat_interleave(counts)
            number = torch.arange(row.shape[0], device=row.device) - first[:-1].repeat_interleave(counts)
            self._parts[size] = Parts(*(made.int() for made in (row, self.rowptr[row] + number * size, long_row, first)))
        return self._parts[size]

    @cached_property
    def _parts(self) -> dict[int, Parts]:
        return {}

    def _tensors(self) -> list[Tensor]:
        """Return every tensor that has been made for the graph so far."""
        made = [self.rowptr, self.col, self.edge, *(tensor for parts in self._parts.values() for tensor in parts)]
        return made + (self.by_source._tensors() if "by_source" in vars(self) else [])

    @cached_property
    def _stream(self) -> int:
        """The stream that the graph was first used on."""
        return torch._C._cuda_getCurrentRawStream(self.col.device.index)

    def used(self) -> None:
        """Tell PyTorch that the current stream uses the graph's memory, so that it is not reused too early if the graph is freed."""
        if self.col.is_cuda and torch._C._cuda_getCurrentRawStream(self.col.device.index) != self._stream:
            stream = torch.cuda.current_stream(self.col.device)
            for tensor in self._tensors():
                tensor.record_stream(stream)


def check_edges(edge_index: Tensor, num_src: int, num_dst: int, num_loops: int = 0) -> None:
    """Check that all nodes of an edge list exist, and that 32 bits can count its entries.

    Args:
        edge_index: The edge list, int64 [2, E].
        num_src: The number of nodes that `edge_index[0]` may name.
        num_dst: The number of nodes that `edge_index[1]` may name.
        num_loops: The number of self-loops that are added to the edges.

    Raises:
        IndexError: If a node does not exist. The message names the node and its place.
        UserError: If there are too many nodes or entries, or if a CUDA graph is being captured.
    """
    num_edges = edge_index.shape[1]
    if max(num_edges + num_loops, num_src, num_dst) > _MOST:
        raise UserError(
            f"A graph of {max(num_src, num_dst):,} nodes and {num_edges:,} edges{', with self-loops,' * (num_loops > 0)} is too large for "
            f"this operator, which counts up to {_MOST:,}. Split it into smaller batches, or use PyG's layers (backend=pyg)."
        )
    _not_while_capturing(edge_index)
    if num_edges == 0:
        return
    lowest, highest = torch.stack(edge_index.aminmax(dim=1)).tolist()
    for row, count in enumerate((num_src, num_dst)):
        if lowest[row] < 0 or highest[row] >= count:
            place = int(((edge_index[row] < 0) | (edge_index[row] >= count)).nonzero()[0])
            raise IndexError(
                f"edge_index has a node outside 0 .. {count - 1}: edge_index[{row}, {place}] is {int(edge_index[row, place])}, but there "
                f"are {count:,} {('source', 'target')[row]} nodes"
            )


def empty_rows(num_rows: int, num_entries: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return uninitialised pointers [rows + 1], columns [entries] and places [entries], all int32 on the CPU, for C++ to fill."""
    rowptr = torch.empty(num_rows + 1, dtype=torch.int32, device="cpu")
    col, place = torch.empty(2, num_entries, dtype=torch.int32, device="cpu")
    return rowptr, col, place


def addresses(*tensors: Tensor) -> tuple[int, ...]:
    """Return the addresses of the tensors' values."""
    return tuple(tensor.data_ptr() for tensor in tensors)


def use_huge_pages(*tensors: Tensor) -> None:
    """Ask for huge pages for new tensors of a CPU. The faults of small pages took longer than the kernels that fill large tensors."""
    assert _cpu is not None
    for tensor in tensors:
        _cpu.use_huge_pages(tensor.data_ptr(), tensor.nbytes)


def _order(row: Tensor, num_rows: int) -> tuple[Tensor, Tensor]:
    """Return the row pointers, int32 [rows + 1], and the permutation [E] that sorts the edges stably by row."""
    ordered, place = row.int().sort(stable=True)
    nodes = torch.arange(num_rows + 1, dtype=torch.int32, device=row.device)
    return torch.searchsorted(ordered, nodes, out_int32=True), place


def _not_while_capturing(tensor: Tensor) -> None:
    if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
        raise UserError(
            "A CUDA graph is being captured, and edge_index is a tensor whose edges have not been sorted yet. Run the same step once "
            "before the capture with the very same edge_index: forward, and backward where it is captured."
        )
