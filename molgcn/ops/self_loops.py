"""Graphs with added self-loops, which replace the self-loops of the edge list."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from molgcn.ops.edge_graph import EdgeGraph, check_edges
from molgcn.ops.remembered import remembered


class LoopedGraph(EdgeGraph):
    """A graph without its last target and source, which hold the edges to leave out. `col` and `edge` end with these edges."""

    _full: EdgeGraph

    @classmethod
    def of_full(cls, full: EdgeGraph) -> LoopedGraph:
        """Return a graph without its last target and source."""
        rows = EdgeGraph._finished(full.rowptr[:-1], full.col, full.edge, full.num_src - 1)
        graph = cls(rows.rowptr, rows.col, rows.edge, rows.num_src, rows.longest)
        graph._full = full
        return graph

    @cached_property
    def by_source(self) -> EdgeGraph:
        """The same edges with one row per source; see :attr:`EdgeGraph.by_source`."""
        return self.of_full(self._full.by_source)


def graph_with_loops(edge_index: Tensor, num_src: int, num_dst: int, num_loops: int, reverse: bool) -> EdgeGraph:
    """Return the graph of an edge list with `num_loops` added self-loops, remembered with the list; see :meth:`EdgeGraph.of`.

    If no self-loops are added, this is the graph of the edge list itself. Otherwise the self-loop of node i has index E + i, and the edge
    list's own self-loops are moved to one more row after the last target and source, which kernels do not read. So no size depends on how
    many they are.

    Args:
        edge_index: The source and target of every edge, int64 [2, E].
        num_src: The number of sources.
        num_dst: The number of targets.
        num_loops: The first `num_loops` nodes get a self-loop.
        reverse: Whether edges go from `edge_index[1]` to `edge_index[0]`.

    Raises:
        IndexError: If an edge names a node that does not exist. The message names the node.
        UserError: If there are more nodes or edges than 32 bits can count, or if edge_index is new while a CUDA graph is captured.
    """
    if num_loops == 0:
        return EdgeGraph.of(edge_index, num_src, num_dst, reverse)

    def make() -> EdgeGraph:
        rows = (num_dst, num_src) if reverse else (num_src, num_dst)
        check_edges(edge_index, *rows, num_loops=num_loops)
        edges = edge_index.detach()
        own = edges[0] == edges[1]
        nodes = torch.arange(num_loops, device=edges.device)
        ends = [torch.cat([ends.masked_fill(own, count), nodes]) for ends, count in zip(edges, rows, strict=True)]
        return LoopedGraph.of_full(EdgeGraph.of(torch.stack(ends), num_src + 1, num_dst + 1, reverse))

    graph = remembered(edge_index, ("self-loops", num_src, num_dst, num_loops, reverse), make)
    graph.used()
    return graph
