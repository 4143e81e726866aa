"""Compare `molgcn::aggregate` with cuSPARSE's product, PyG's scatter and plain PyTorch, and its strategies with each other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from molgcn.errors import UserError
from molgcn.ops import aggregate, renumber
from molgcn_benchmark.graphs import GraphCase
from molgcn_benchmark.measure import interleaved, medians, milliseconds

BOUND = 1e-5  # largest relative L2 error against float64
Calls = dict[str, Callable[[], object]]


def captured(call: Callable[[], object]) -> Callable[[], object]:
    """Return the replay of a CUDA graph of a call."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def times(calls: Calls, device: torch.device, repeats: int, capture: bool) -> dict[str, float]:
    """Return the microseconds of each call, eager or captured.

    Args:
        calls: the calls by name.
        device: the device that they run on.
        repeats: the number of times that each is timed.
        capture: whether to time the replay of a CUDA graph.
    """
    made = {name: captured(call) if capture else call for name, call in calls.items()}
    return {name: 1e3 * time for name, time in medians(interleaved(made, device, repeats)).items()}


def alone(case: GraphCase, width: int, repeats: int) -> dict[str, float]:
    """Return the microseconds of an unweighted sum over neighbours: ours, cuSPARSE's and PyG's, eager and captured.

    Only the forward pass is timed.

    Raises:
        UserError: if our result is wrong.
    """
    from torch_geometric.utils import scatter

    x = torch.randn(case.num_nodes, width, device=case.edge_index.device)
    source, target = case.edge_index
    matrix = _csr(case)
    _check(case.title, aggregate(x, case.edge_index), torch.zeros_like(x, dtype=torch.float64).index_add_(0, target, x.double()[source]))
    calls: Calls = {
        "aggregate": lambda: aggregate(x, case.edge_index),
        "cuSPARSE": lambda: matrix @ x,
        "scatter": lambda: scatter(x[source], target, 0, case.num_nodes),
    }
    found: dict[str, float] = {}
    for capture in (False, True):
        found |= {f"{name}{', captured' * capture}": time for name, time in times(calls, x.device, repeats, capture).items()}
    return found


def strategies(case: GraphCase, width: int, repeats: int) -> dict[str, float]:
    """Return the microseconds of forward and backward with scalar weights, captured, by strategy.

    "GNNAdvisor" follows that system's rule: groups of the mean degree, min(width, 32) dimension workers and atomic additions. fuseGNN
    lets its user choose between `vertex` and `edge`.
    """
    group = max(case.edge_index.shape[1] // case.num_nodes, 1)
    options: dict[str, dict] = {
        "auto": {},
        "vertex": {"strategy": "vertex"},
        "neighbor_group": {"strategy": "neighbor_group"},
        "neighbor_group, atomic": {"strategy": "neighbor_group", "deterministic": False},
        "GNNAdvisor": {"strategy": "neighbor_group", "deterministic": False, "group_size": group, "dimension_workers": min(width, 32)},
        "edge": {"strategy": "edge", "deterministic": False},
    }
    x = torch.randn(case.num_nodes, width, device=case.edge_index.device, requires_grad=True)
    weight = torch.rand(case.edge_index.shape[1], device=x.device)
    grad = torch.randn_like(x)

    def both(chosen: dict) -> object:
        return torch.autograd.grad(aggregate(x, case.edge_index, weight, **chosen), x, grad)

    calls: Calls = {name: partial(both, chosen) for name, chosen in options.items()}
    return times(calls, x.device, repeats, capture=True)


def vector_weights(num_channels: int, repeats: int, device: torch.device) -> dict[str, float]:
    """Return the times of sums with a weight for every edge and channel, for N = 4,096 and E = 200,000.

    The result holds microseconds, the memory beyond inputs and results in percent of these, and the microseconds of moving the weights
    once.
    """
    num_nodes, num_edges = 4096, 200_000
    generator = torch.Generator(device).manual_seed(0)
    edge_index = torch.randint(0, num_nodes, (2, num_edges), generator=generator, device=device)
    x = torch.randn(num_nodes, num_channels, generator=generator, device=device, requires_grad=True)
    weight = torch.randn(num_edges, num_channels, generator=generator, device=device, requires_grad=True)
    grad = torch.randn(num_nodes, num_channels, generator=generator, device=device)

    def ours() -> Tensor:
        return aggregate(x, edge_index, weight)

    def plain() -> Tensor:
        return torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]] * weight)

    found: dict[str, float] = {}

    def both(forward: Callable[[], Tensor]) -> tuple[Tensor, ...]:
        return torch.autograd.grad(forward(), (x, weight), grad)

    for name, call in (("aggregate", ours), ("PyTorch", plain)):
        calls: Calls = {"forward": torch.no_grad()(call), "forward + backward": partial(both, call)}
        found |= {f"{name} {work}": time for work, time in times(calls, device, repeats, capture=False).items()}
        if call is ours:
            found |= {f"{name} {work}, captured": time for work, time in times(calls, device, repeats, capture=True).items()}
        found[f"{name} extra memory, %"] = 100 * _beyond(partial(both, call), [x, weight, grad])
    moved = torch.empty_like(weight)
    found["moving w once"] = 1e3 * milliseconds(lambda: moved.copy_(weight.detach()), device, 10) / 2
    return found


def renumbered(case: GraphCase, width: int, repeats: int) -> dict[str, float]:
    """Return the microseconds of an unweighted sum, captured, with the nodes in their given order and renumbered."""
    order = renumber(case.edge_index, case.num_nodes)
    place = torch.empty_like(order).scatter_(0, order, torch.arange(case.num_nodes, device=order.device))
    edges = place[case.edge_index]
    x = torch.randn(case.num_nodes, width, device=edges.device)
    calls: Calls = {"as they come": lambda: aggregate(x, case.edge_index), "renumbered": lambda: aggregate(x, edges)}
    return times(calls, x.device, repeats, capture=True)


def _csr(case: GraphCase) -> Tensor:
    """Return the adjacency as a CSR matrix of PyTorch, with a row for each target."""
    from molgcn.ops.edge_graph import EdgeGraph

    graph = EdgeGraph.of(case.edge_index, case.num_nodes, case.num_nodes)
    ones = torch.ones(graph.num_edges, device=graph.col.device)
    return torch.sparse_csr_tensor(graph.rowptr, graph.col, ones, (case.num_nodes, case.num_nodes))


def _check(name: str, actual: Tensor, expected: Tensor) -> None:
    error = ((actual.double() - expected).norm() / expected.norm()).item()
    if error > BOUND:
        raise UserError(f"aggregate is wrong on {name}: relative error {error:.1e} against float64.")


def _beyond(call: Callable[[], tuple[Tensor, ...]], inputs: list[Tensor]) -> float:
    """Return the peak of memory beyond inputs and results, as a fraction of the memory of these."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    results = call()
    peak = torch.cuda.max_memory_allocated() - before
    of_results = sum(result.nbytes for result in results) + inputs[-1].nbytes  # the last input is as large as forward's result
    return (peak - of_results) / (of_results + sum(tensor.nbytes for tensor in inputs))
