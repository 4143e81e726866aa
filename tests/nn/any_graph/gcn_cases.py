"""Graphs, layers and comparisons that the tests of FusedGCNConv share."""

import torch
from torch_geometric.nn import GCNConv

from molgcn.nn import FusedGCNConv

STAR = torch.tensor([[0, 0, 0, 1, 2, 3], [1, 2, 3, 0, 0, 0]])


def pair(*arguments, **options):
    """Return both layers with the same random weights and biases, in float64."""
    fused, pyg = FusedGCNConv(*arguments, **options).double(), GCNConv(*arguments, **options).double()
    if fused.bias is not None:
        torch.nn.init.normal_(fused.bias)
    pyg.load_state_dict(fused.state_dict())
    return fused, pyg


def results(layer, x, edge_index, edge_weight=None, grad=None):
    """Return the output and every gradient."""
    layer.zero_grad()
    x = x.detach().clone().requires_grad_()
    edge_weight = None if edge_weight is None else edge_weight.detach().clone().requires_grad_()
    out = layer(x, edge_index, edge_weight)
    out.backward(torch.ones_like(out) if grad is None else grad)
    gradients = {name: parameter.grad.clone() for name, parameter in layer.named_parameters()}
    weight = {} if edge_weight is None else {"edge_weight": edge_weight.grad}
    return {"out": out.detach(), "x": x.grad, **gradients, **weight}


def assert_same(fused, pyg, x, edge_index, edge_weight=None, tolerance=1e-12, without=()):
    grad = torch.randn(x.shape[0], fused.out_channels, dtype=x.dtype)
    assert fused.why_not(x, edge_index, edge_weight) is None
    actual, expected = results(fused, x, edge_index, edge_weight, grad), results(pyg, x, edge_index, edge_weight, grad)
    assert list(actual) == list(expected)
    floor = max(1e-3 * max(value.norm().item() for value in expected.values()), 1e-9)
    for name, value in expected.items():
        assert name in without or (actual[name] - value).norm() <= tolerance * max(value.norm().item(), floor), name
    return actual


def random_graph(num_nodes, num_edges, seed=0, loops=True):
    """Return unsorted edges with duplicates, and at most one self-loop at a node."""
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(0, num_nodes, (2, num_edges), generator=generator)
    own = (edge_index[0] == edge_index[1]).nonzero()[:, 0]
    first = torch.unique(edge_index[0, own], return_inverse=True)[1]
    keep = torch.ones(num_edges, dtype=torch.bool)
    keep[own] = torch.tensor([loops and place not in first[:i].tolist() for i, place in enumerate(first.tolist())], dtype=torch.bool)
    return edge_index[:, keep]
