"""All fused layers for any graph with the options that matter, and comparisons with PyG's layers of the same weights."""

import copy

import pytest
import torch
from compiler import needs_extension
from torch_geometric import nn as pyg

from molgcn import nn as ours

DEVICES = [pytest.param("cpu", marks=needs_extension), pytest.param("cuda", marks=pytest.mark.gpu)]
WIDTH, EDGE_WIDTH = 6, 4


def mlp():
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, 8), torch.nn.ReLU(), torch.nn.Linear(8, 5))


# layer, its arguments, and whether it takes edge_attr
LAYERS = [
    ("GCNConv", (WIDTH, 5), {}, False),
    ("GCNConv", (WIDTH, 9), {"add_self_loops": False, "bias": False}, False),
    ("GCNConv", (WIDTH, 5), {"flow": "target_to_source"}, False),
    ("GCNConv", (WIDTH, 5), {"normalize": False}, False),
    ("GINConv", (mlp,), {"train_eps": True, "eps": 0.3}, False),
    ("GINConv", (mlp,), {"aggr": "mean", "flow": "target_to_source"}, False),
    ("GINConv", (mlp,), {"aggr": "max"}, False),
    ("GINEConv", (mlp,), {"train_eps": True, "edge_dim": EDGE_WIDTH}, True),
    ("GINEConv", (mlp,), {"edge_dim": EDGE_WIDTH, "flow": "target_to_source"}, True),
    ("SAGEConv", (WIDTH, 5), {}, False),
    ("SAGEConv", (WIDTH, 5), {"aggr": "sum", "normalize": True, "project": True}, False),
    ("SAGEConv", (WIDTH, 5), {"aggr": "max", "root_weight": False, "bias": False}, False),
    ("GATConv", (WIDTH, 5), {"heads": 3}, False),
    ("GATConv", (WIDTH, 8), {"heads": 2, "concat": False, "residual": True, "edge_dim": EDGE_WIDTH}, True),
    ("GATConv", (WIDTH, 5), {"edge_dim": EDGE_WIDTH, "fill_value": 0.5, "flow": "target_to_source", "bias": False}, True),
    ("GATConv", (WIDTH, 5), {"add_self_loops": False, "negative_slope": 0.1, "edge_dim": EDGE_WIDTH, "fill_value": "add"}, True),
    ("GATv2Conv", (WIDTH, 5), {"heads": 3}, False),
    ("GATv2Conv", (WIDTH, 8), {"heads": 2, "concat": False, "residual": True, "edge_dim": EDGE_WIDTH}, True),
    ("GATv2Conv", (WIDTH, 5), {"share_weights": True, "edge_dim": EDGE_WIDTH, "fill_value": torch.arange(4.0)}, True),
    ("GATv2Conv", (WIDTH, 5), {"add_self_loops": False, "flow": "target_to_source", "bias": False}, False),
]
EACH_ONCE = [next(case for case in LAYERS if case[0] == name) for name in dict.fromkeys(case[0] for case in LAYERS)]


def name_of(case):
    return f"{case[0]}-{case[2]}"


def pair(case, dtype=torch.float64, device="cpu"):
    """Return the fused layer and PyG's, with the same random weights and biases."""
    name, arguments, options, _ = case
    torch.manual_seed(0)
    given = [argument() if callable(argument) else argument for argument in arguments]
    fused = getattr(ours, f"Fused{name}")(*given, **options)
    for parameter in fused.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    theirs = getattr(pyg, name)(*copy.deepcopy(given), **options)
    theirs.load_state_dict(fused.state_dict())
    return fused.to(device, dtype), theirs.to(device, dtype)


def random_graph(num_nodes=40, num_edges=150, seed=0, hub=False):
    """Return edges with duplicates, a few self-loops, a last node without edges, and a hub if wanted."""
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(0, max(num_nodes - 1, 1), (2, num_edges), generator=generator)
    edge_index[:, : num_edges // 20] = edge_index[:1, : num_edges // 20]
    if hub:
        edge_index[1, num_edges // 4 :] = 0
    return edge_index


def inputs_for(case, edge_index, num_nodes=40, dtype=torch.float64, device="cpu", seed=1):
    """Return the arguments of a call: x, edge_index and edge_attr. The floating-point ones require gradients."""
    generator = torch.Generator().manual_seed(seed)
    made = [torch.randn(num_nodes, WIDTH, generator=generator)]
    made += [torch.randn(edge_index.shape[1], EDGE_WIDTH, generator=generator)] if case[3] else []
    x, *attributes = (tensor.to(device, dtype).requires_grad_() for tensor in made)
    return x, edge_index.to(device), *attributes


def results(layer, *arguments):
    """Return the output and the gradients of floating-point arguments and parameters."""
    out = layer(*arguments)
    leaves = [argument for argument in arguments if argument.requires_grad] + list(layer.parameters())
    grad = torch.sin(torch.arange(out.numel(), dtype=torch.float64, device=out.device)).view_as(out).to(out)
    found = torch.autograd.grad(out, leaves, grad, allow_unused=True)
    return [out.detach(), *(torch.zeros_like(leaf) if gradient is None else gradient for gradient, leaf in zip(found, leaves, strict=True))]


def assert_close(found, expected, tolerance):
    """Assert that every tensor is within a tolerance, relative to its largest element."""
    for number, (actual, wanted) in enumerate(zip(found, expected, strict=True)):
        scale = max(wanted.abs().max().item() if wanted.numel() else 0.0, 1e-3)
        error = (actual.double() - wanted.double()).abs().max().item() if wanted.numel() else 0.0
        assert actual.shape == wanted.shape and error <= tolerance * scale, (number, error / scale)
