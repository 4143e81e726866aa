"""Graphs whose nodes get an edge to themselves, in place of those that they have."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from molgcn.ops.edge_graph import EdgeGraph, check_edges
from molgcn.ops.remembered import remembered


class LoopedGraph(EdgeGraph):
    """A graph without its last target and source, where edges were put that nobody walks: `col` and `edge` end in these."""

    _full: EdgeGraph

    @classmethod
    def of_full(cls, full: EdgeGraph) -> LoopedGraph:
        """Leave the last target and source out."""
        rows = EdgeGraph._finished(full.rowptr[:-1], full.col, full.edge, full.num_src - 1)
        graph = cls(rows.rowptr, rows.col, rows.edge, rows.num_src, rows.longest)
        graph._full = full
        return graph

    @cached_property
    def by_source(self) -> EdgeGraph:
        """See :class:`EdgeGraph`."""
        return self.of_full(self._full.by_source)


def graph_with_loops(edge_index: Tensor, num_src: int, num_dst: int, num_loops: int, reverse: bool) -> EdgeGraph:
    """Return the graph of an edge list and `num_loops` self-loops, remembered as :meth:`EdgeGraph.of` does.

    Without self-loops to add, that is the edge list's own. With them, the loop of node i has place E + i, and edges from a node to itself
    are put into one more row, after the last target and source, which nobody walks: nothing here depends on how many they are.

    Args:
        edge_index: int64 [2, E].
        num_src: nodes that edges come from.
        num_dst: nodes that edges go to.
        num_loops: so many first nodes get a self-loop.
        reverse: edges go from `edge_index[1]` to `edge_index[0]`.

    Raises:
        IndexError: for a node that is not there, naming it.
        UserError: for more nodes or edges than 32 bits can count, or a graph that is new during a capture.
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
