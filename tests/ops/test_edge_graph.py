"""The graph of an edge list has the right order, and is remembered as long as it should be."""

import gc
import sys
import weakref
from importlib.util import find_spec, module_from_spec

import pytest
import torch
from compiler import needs_extension

from molgcn.errors import UserError
from molgcn.ops.edge_graph import EdgeGraph

DEVICES = [pytest.param("cpu", marks=needs_extension), pytest.param("cuda", marks=pytest.mark.gpu)]
SHAPES = [(30, 30, 90), (7, 20, 50), (20, 7, 50), (5, 5, 0), (0, 0, 0), (3, 0, 0), (1000, 800, 100_000)]


def random_edges(num_src, num_dst, num_edges, device="cpu", seed=0):
    generator = torch.Generator().manual_seed(seed)
    ends = [torch.randint(0, max(count, 1), (num_edges,), generator=generator) for count in (num_src, num_dst)]
    return torch.stack(ends).to(device)


def entries(graph):
    """Return the row, column and place in the list of every edge."""
    rows = torch.arange(graph.num_dst, device=graph.col.device).repeat_interleave(graph.rowptr.diff())
    return rows, graph.col.long(), graph.edge.long()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("num_src", "num_dst", "num_edges"), SHAPES)
def test_every_edge_once_in_order(num_src, num_dst, num_edges, reverse, device):
    edge_index = random_edges(*((num_dst, num_src) if reverse else (num_src, num_dst)), num_edges, device)
    source, target = edge_index.flip(0) if reverse else edge_index
    graph = EdgeGraph.of(edge_index, num_src, num_dst, reverse)
    for side, row, column in [(graph, target, source), (graph.by_source, source, target)]:
        rows, columns, places = entries(side)
        assert torch.equal(rows, row[places])
        assert torch.equal(columns, column[places])
        assert torch.equal(places.sort().values, torch.arange(num_edges, device=device))
        assert side.longest == (row.bincount().max() if num_edges else 0)
        assert {side.rowptr.dtype, side.col.dtype, side.edge.dtype} == {torch.int32}
    assert torch.equal(entries(graph)[2], target.sort(stable=True).indices)
    assert (graph.num_src, graph.num_dst, graph.num_edges) == (num_src, num_dst, num_edges)
    assert (graph.by_source.num_src, graph.by_source.num_dst) == (num_dst, num_src)


@needs_extension
def test_without_the_extension_the_order_is_the_same(monkeypatch):
    """The module is loaded once more, as a machine without a compiler loads it."""
    spec = find_spec("molgcn.ops.edge_graph")
    without = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "molgcn._cpu", None)
    spec.loader.exec_module(without)
    edge_index = random_edges(40, 30, 200)
    fast, plain = (kind.of(edge_index, 40, 30) for kind in (EdgeGraph, without.EdgeGraph))
    for one, other in [(fast, plain), (fast.by_source, plain.by_source)]:
        assert all(map(torch.equal, entries(one), entries(other)))


@pytest.mark.parametrize("device", DEVICES)
def test_remembered_until_written_to_or_collected(device):
    edge_index = random_edges(30, 30, 90, device)
    first = EdgeGraph.of(edge_index, 30, 30)
    assert EdgeGraph.of(edge_index, 30, 30) is first
    assert EdgeGraph.of(edge_index, 30, 31) is not first
    assert EdgeGraph.of(edge_index, 30, 30, reverse=True) is not first
    edge_index[0, :10] = 3
    second = EdgeGraph.of(edge_index, 30, 30)
    assert torch.equal(second.col.long(), edge_index[0][second.edge.long()])
    alive = weakref.ref(second)
    del first, second, edge_index
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("row", "node", "named"), [(0, -1, "source"), (0, 30, "source"), (1, 20, "target"), (1, 2**40, "target")])
def test_a_node_that_is_not_there_is_named(row, node, named, device):
    edge_index = random_edges(30, 20, 90, device)
    edge_index[row, 13] = node
    with pytest.raises(IndexError, match=rf"edge_index\[{row}, 13\] is {node}, but there are {(30, 20)[row]} {named} nodes"):
        EdgeGraph.of(edge_index, 30, 20)


@pytest.mark.parametrize(("num_edges", "num_src", "num_dst"), [(2**31, 1, 1), (1, 2**31, 1), (1, 1, 2**31)])
def test_more_than_32_bits_count(num_edges, num_src, num_dst):
    edge_index = torch.zeros(2, 1, dtype=torch.int64).expand(2, num_edges)  # takes no memory
    with pytest.raises(UserError, match="counts up to 2,147,483,647"):
        EdgeGraph.of(edge_index, num_src, num_dst)


@pytest.mark.gpu
def test_a_capture_takes_the_graph_made_before_and_makes_none():
    edge_index = random_edges(30, 30, 90, "cuda")
    known = EdgeGraph.of(edge_index, 30, 30)
    torch.cuda.synchronize()
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        assert EdgeGraph.of(edge_index, 30, 30) is known
        with pytest.raises(UserError, match="Run the same step once before the capture"):
            known.by_source  # noqa: B018
        with pytest.raises(UserError, match="Run the same step once before the capture"):
            EdgeGraph.of(edge_index, 30, 31)
