"""The sorted edges and weights that the CPU's graph convolution makes of an edge list, remembered as long as the list is unchanged."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

import molgcn._cpu as _cpu
from molgcn.ops.edge_graph import addresses, check_edges, empty_rows
from molgcn.ops.remembered import remembered

_WEIGHTS = {torch.float32: _cpu.conv_weights_float32, torch.float64: _cpu.conv_weights_float64}


@dataclass
class ConvGraph:
    """The entries of Â sorted by target: N nodes, at most E + N entries.

    Attributes:
        rowptr: The first entry of each target, int32 [N + 1].
        col: The source of each entry, int32 [entries].
        edge: The place of each entry in the edge list, int32 [entries]; -1 for an added self-loop.
    """

    rowptr: Tensor
    col: Tensor
    edge: Tensor

    @classmethod
    def build(cls, edge_index: Tensor, num_nodes: int, add_self_loops: bool, reverse: bool) -> ConvGraph:
        """Return the graph of an edge list int64 [2, E].

        Raises:
            IndexError: If an edge names a node outside 0 .. N - 1. The message names the node.
            UserError: If there are more entries than 32 bits can count.
        """
        num_loops = num_nodes * add_self_loops
        check_edges(edge_index, num_nodes, num_nodes, num_loops)
        edges = edge_index.detach().contiguous()
        num_edges = edges.shape[1]
        source, target = (edges[1], edges[0]) if reverse else (edges[0], edges[1])
        graph = cls(*empty_rows(num_nodes, num_edges + num_loops))
        sizes = (num_edges, num_nodes, torch.get_num_threads())
        _cpu.conv_sort_edges(target.data_ptr(), source.data_ptr(), sizes, add_self_loops, graph.rows)
        return graph

    @property
    def num_nodes(self) -> int:
        """The number of nodes, N."""
        return self.rowptr.shape[0] - 1

    @property
    def rows(self) -> tuple[int, ...]:
        """The addresses of rowptr, col and edge."""
        return addresses(self.rowptr, self.col, self.edge)

    @cached_property
    def by_source(self) -> tuple[Tensor, Tensor, Tensor]:
        """The same entries sorted by source: their pointers, their targets, and their places in this graph's order."""
        rowptr, target, place = empty_rows(self.num_nodes, self.col.shape[0])
        numbers = (self.num_nodes, self.num_nodes, torch.get_num_threads())
        _cpu.conv_transpose(self.rows[:2], *numbers, addresses(rowptr, target, place))
        return rowptr, target, place[: int(rowptr[-1])]

    @cached_property
    def unweighted(self) -> dict[Any, EntryWeights]:
        """The entries' weights if all edges weigh 1, by dtype, normalisation and weight of added self-loops."""
        return {}

    def weights(self, edge_weight: Tensor | None, normalize: bool, loop_weight: float, dtype: torch.dtype) -> EntryWeights:
        """Return the weights of the entries, remembered if all edges weigh 1."""
        key = (dtype, normalize, loop_weight)
        if edge_weight is None and key in self.unweighted:
            return self.unweighted[key]
        weight = torch.empty(self.col.shape[0], dtype=dtype, device="cpu")
        scale = torch.empty(self.num_nodes, dtype=dtype, device="cpu") if normalize else None
        edge = 0 if edge_weight is None else edge_weight.data_ptr()
        scale_at = 0 if scale is None else scale.data_ptr()
        _WEIGHTS[dtype](self.num_nodes, torch.get_num_threads(), self.rows, edge, loop_weight, scale_at, weight.data_ptr())
        made = EntryWeights(self, weight, scale)
        if edge_weight is None:
            self.unweighted[key] = made
        return made


@dataclass
class EntryWeights:
    """The weights of a graph's entries.

    Attributes:
        graph: The graph.
        weight: The weight of each entry [entries], in the graph's order.
        scale: The nodes' D^-1/2 [N], or None without normalisation.
    """

    graph: ConvGraph
    weight: Tensor
    scale: Tensor | None

    @cached_property
    def weight_by_source(self) -> Tensor:
        """The weights in the order of `graph.by_source`."""
        return self.weight[self.graph.by_source[2]]

    @property
    def adjacency(self) -> tuple[int, ...]:
        """The addresses of Â by target. The graph and this object must outlive their use."""
        return (*self.graph.rows[:2], self.weight.data_ptr())

    @property
    def transposed(self) -> tuple[int, ...]:
        """The addresses of Â by source. The graph and this object must outlive their use."""
        rowptr, target, _ = self.graph.by_source
        return addresses(rowptr, target, self.weight_by_source)


def graph_of(edge_index: Tensor, num_nodes: int, add_self_loops: bool, reverse: bool) -> ConvGraph:
    """Return the graph of an edge list, remembered with the very same tensor (:func:`molgcn.ops.remembered.remembered`)."""
    options = (num_nodes, add_self_loops, reverse)
    return remembered(edge_index, (ConvGraph, *options), lambda: ConvGraph.build(edge_index, *options))
