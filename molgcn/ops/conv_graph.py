"""What the CPU's graph convolution makes of an edge list: made once, remembered for as long as the list lives unchanged."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

import molgcn._cpu as _cpu
from molgcn.errors import UserError

_MOST = 2**31 - 1
_WEIGHTS = {torch.float32: _cpu.conv_weights_float32, torch.float64: _cpu.conv_weights_float64}


@dataclass
class ConvGraph:
    """The entries of Â ordered by target; N nodes, at most E + N entries.

    Attributes:
        rowptr: int64 [N + 1], first entry of each target.
        col: int32, source of each entry.
        edge: int32, the entry's place in the edge list, -1 for an added self-loop.
    """

    rowptr: Tensor
    col: Tensor
    edge: Tensor

    @classmethod
    def build(cls, edge_index: Tensor, num_nodes: int, add_self_loops: bool, reverse: bool) -> ConvGraph:
        """Orders an edge list int64 [2, E].

        Raises:
            IndexError: for a node outside 0 .. N - 1.
            UserError: for more entries than 32 bits can count.
        """
        num_entries = edge_index.shape[1] + num_nodes * add_self_loops
        if max(num_entries, num_nodes) > _MOST:
            raise UserError(
                f"A graph of {num_nodes:,} nodes and {edge_index.shape[1]:,} edges{', with self-loops,' * add_self_loops} is too large for "
                f"backend=fused on a CPU, which counts up to {_MOST:,}. Split it into smaller batches, or use backend=pyg."
            )
        edges = edge_index.detach().contiguous()
        num_edges = edges.shape[1]
        source, target = (edges[1], edges[0]) if reverse else (edges[0], edges[1])
        graph = cls(*_empty_rows(num_nodes, num_entries))
        sizes = (num_edges, num_nodes, torch.get_num_threads())
        _cpu.conv_sort_edges(target.data_ptr(), source.data_ptr(), sizes, add_self_loops, graph.rows)
        return graph

    @property
    def num_nodes(self) -> int:
        """N."""
        return self.rowptr.shape[0] - 1

    @property
    def rows(self) -> tuple[int, int, int]:
        """Addresses of rowptr, col and edge."""
        return self.rowptr.data_ptr(), self.col.data_ptr(), self.edge.data_ptr()

    @cached_property
    def by_source(self) -> tuple[Tensor, Tensor, Tensor]:
        """The same entries ordered by source: pointers, targets, and places in this graph's order."""
        rowptr, target, place = _empty_rows(self.num_nodes, self.col.shape[0])
        addresses = (rowptr.data_ptr(), target.data_ptr(), place.data_ptr())
        _cpu.conv_transpose(self.rows[:2], self.num_nodes, torch.get_num_threads(), addresses)
        return rowptr, target, place[: int(rowptr[-1])]

    @cached_property
    def unweighted(self) -> dict[Any, EntryWeights]:
        """Entry weights for edge weights of one, by dtype, normalisation and weight of added loops."""
        return {}

    def weights(self, edge_weight: Tensor | None, normalize: bool, loop_weight: float, dtype: torch.dtype) -> EntryWeights:
        """The weights of the entries; remembered where all edges weigh one."""
        key = (dtype, normalize, loop_weight)
        if edge_weight is None and key in self.unweighted:
            return self.unweighted[key]
        weight = torch.empty(self.col.shape[0], dtype=dtype)
        scale = torch.empty(self.num_nodes, dtype=dtype) if normalize else None
        edge = 0 if edge_weight is None else edge_weight.data_ptr()
        scale_at = 0 if scale is None else scale.data_ptr()
        _WEIGHTS[dtype](self.num_nodes, torch.get_num_threads(), self.rows, edge, loop_weight, scale_at, weight.data_ptr())
        made = EntryWeights(self, weight, scale)
        if edge_weight is None:
            self.unweighted[key] = made
        return made


@dataclass
class EntryWeights:
    """Weights [entries] in the order of a graph, and the scale [N] of its nodes, None without normalisation."""

    graph: ConvGraph
    weight: Tensor
    scale: Tensor | None

    @cached_property
    def weight_by_source(self) -> Tensor:
        """The weights in the order of `graph.by_source`."""
        return self.weight[self.graph.by_source[2]]

    @property
    def adjacency(self) -> tuple[int, int, int]:
        """Addresses of Â by target; the graph and this object must outlive their use."""
        return (*self.graph.rows[:2], self.weight.data_ptr())

    @property
    def transposed(self) -> tuple[int, int, int]:
        """Addresses of Â by source."""
        rowptr, target, _ = self.graph.by_source
        return rowptr.data_ptr(), target.data_ptr(), self.weight_by_source.data_ptr()


def _empty_rows(num_nodes: int, num_entries: int) -> tuple[Tensor, Tensor, Tensor]:
    pointers = torch.empty(num_nodes + 1, dtype=torch.int64)
    col, place = torch.empty(2, num_entries, dtype=torch.int32)
    return pointers, col, place


_REMEMBERED: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def graph_of(edge_index: Tensor, num_nodes: int, add_self_loops: bool, reverse: bool) -> ConvGraph:
    """The graph of an edge list: the one made before, if the very same tensor has not been written to since.

    Writing values past PyTorch (through NumPy or `.data`) goes unnoticed.
    """
    if edge_index.is_inference():  # has no version counter
        return ConvGraph.build(edge_index, num_nodes, add_self_loops, reverse)
    graphs: dict[Any, ConvGraph] = {}
    version, known = _REMEMBERED.get(edge_index, (None, graphs))
    if version != edge_index._version:
        known = graphs
        _REMEMBERED[edge_index] = (edge_index._version, known)
    key = (num_nodes, add_self_loops, reverse, edge_index.data_ptr(), edge_index.shape)  # `.data =` changes these, not the version
    if key not in known:
        known[key] = ConvGraph.build(edge_index, num_nodes, add_self_loops, reverse)
    return known[key]
