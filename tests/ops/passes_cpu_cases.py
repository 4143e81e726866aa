"""Calls of the C++ layer network, and what it and its steps in plain PyTorch make of them."""

import torch
from layer_network_cases import network_options
from plain_steps import PlainSteps

from molgcn.nn.network_steps import NetworkOptions, program_of
from molgcn.ops.graph import Graph
from molgcn.ops.layer_network import engine
from molgcn.ops.layer_network.call import LayerNetworkCall, Options

SIZES = [5, 1, 0, 12, 30, 2, 9, 80, 0, 3, 3, 7, 25]
CONVS = {
    "gcn": {"conv": "gcn"},
    "gcn without loops": {"conv": "gcn", "add_self_loops": False},
    "gin": {"conv": "gin"},
    "gin norm": {"conv": "gin", "train_eps": True, "mlp_norm": True},
    "gine": {"conv": "gine", "edge_channels": 3, "train_eps": True},
    "gine norm": {"conv": "gine", "edge_channels": 6, "mlp_norm": True},
    "gcn_edge": {"conv": "gcn_edge", "edge_channels": 3},
    "gcn_edge of one width": {"conv": "gcn_edge", "edge_channels": 10},
    "dmpnn": {"conv": "dmpnn", "edge_channels": 3},
    "dmpnn without bonds": {"conv": "dmpnn", "message_bias": True, "activation": "silu"},
    "dmpnn of one width": {"conv": "dmpnn", "edge_channels": 10, "message_bias": True},
    "gat": {"conv": "gat", "edge_channels": 3, "heads": 2, "attention_dropout": 0.3},
    "gat mean": {"conv": "gat", "heads": 3, "concat": False, "linear_residual": True, "negative_slope": 0.1},
    "gatv2": {"conv": "gatv2", "edge_channels": 3, "heads": 2, "attention_dropout": 0.2, "linear_residual": True, "bias": False},
    "gatv2 mean": {"conv": "gatv2", "edge_channels": 10, "heads": 3, "concat": False, "share_weights": True},
    "gated_gcn": {"conv": "gated_gcn", "edge_channels": 3},
    "gated_gcn of one width": {"conv": "gated_gcn", "edge_channels": 10},
    "sage": {"conv": "sage"},
    "sage sum": {"conv": "sage", "aggr": "sum", "root_weight": False, "normalize": True},
    "sage max": {"conv": "sage", "aggr": "max", "project": True},
}
NETWORKS = {
    "plain": {},
    "batch": {"norm": "batch", "residual": True, "dropout": 0.3},
    "layer": {"norm": "layer", "residual": True, "dropout": 0.3, "last_activation": False},
    "blocks": {"norm": "batch", "feed_forward": True, "dropout": 0.2, "pool": "sum", "residual": True},
    "blocks with layer norm": {"feed_forward": True, "feed_forward_norm": "layer", "pool": "max"},
    "blocks without": {"norm": "layer", "feed_forward": True, "feed_forward_norm": None, "last_activation": False, "pool": "max"},
}


def network(conv: str = "gine", options: str = "batch", *, in_channels: int = 6, hidden: int = 10, layers: int = 3) -> NetworkOptions:
    own = {**CONVS[conv], **NETWORKS[options]}
    return network_options(in_channels=in_channels, hidden_channels=hidden, num_layers=layers, **own)


def graph(edges: list[list[tuple[int, int]]], sizes: list[int], options: NetworkOptions, *, coded: bool = True) -> Graph:
    """Return molecules of these sizes with bonds in both directions along the edges of each, which may be loops and duplicates."""
    generator = torch.Generator().manual_seed(7)
    ptr = [0]
    bonds: list[tuple[int, int]] = []
    for size, own in zip(sizes, edges, strict=True):
        pairs = [(i % size, j % size) for i, j in own if size]
        bonds += [(ptr[-1] + a, ptr[-1] + b) for i, j in pairs for a, b in ([(i, j), (j, i)] if i != j else [(i, i)])]
        ptr.append(ptr[-1] + size)
    bonds.sort()
    rowptr = torch.bincount(torch.tensor([to for to, _ in bonds], dtype=torch.int64) + 1, minlength=ptr[-1] + 1).cumsum(0).int()
    x = torch.randn(ptr[-1], options.in_channels, generator=generator, dtype=torch.float64)
    col, kinds = torch.tensor([source for _, source in bonds], dtype=torch.int32), 5
    if options.edge_channels is None:
        return Graph(x, None, torch.tensor(ptr, dtype=torch.int32), rowptr, col)
    rows = torch.randn(kinds if coded else len(bonds), options.edge_channels, generator=generator, dtype=torch.float64)
    code = torch.randint(0, kinds, (len(bonds),), generator=generator, dtype=torch.int32) if coded else None
    return Graph(x, rows, torch.tensor(ptr, dtype=torch.int32), rowptr, col, code)


def rings(sizes: list[int] = SIZES) -> list[list[tuple[int, int]]]:
    """Return edges of rings with a chord."""
    return [[*((i, i + 1) for i in range(size)), (0, size // 2)] if size > 3 else [(0, 1)] * (size > 1) for size in sizes]


def call_of(options: NetworkOptions, of: Graph | None = None, *, training: bool = True, coded: bool = True) -> LayerNetworkCall:
    generator = torch.Generator().manual_seed(11)

    def draw(name: str, shape: tuple[int, ...]) -> torch.Tensor:
        drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
        return drawn / shape[-1] ** 0.5 if len(shape) > 1 else 0.3 * drawn + (name.endswith("weight") or name.endswith("running_var")) * 1.0

    program = program_of(options._replace(training=True) if training else options._replace(dropout=0.0))
    parameters = [draw(name, shape) for name, shape in program.parameters.items()]
    statistics = [draw(name, shape).abs() for name, shape in program.statistics.items()]
    of = graph(rings(), SIZES, options, coded=coded) if of is None else of
    return LayerNetworkCall(of, program, parameters, statistics, torch.tensor([0x123456789ABCDEF]), Options(training))


def changed(call: LayerNetworkCall, change) -> LayerNetworkCall:
    """Return the call with `change` made to every floating-point tensor."""
    of = call.graph._replace(x=change(call.graph.x), bonds=None if call.graph.bonds is None else change(call.graph.bonds))
    parameters, statistics = ([change(tensor) for tensor in tensors] for tensors in (call.parameters, call.statistics))
    return call._replace(graph=of, parameters=parameters, statistics=statistics)


def weights(call: LayerNetworkCall) -> torch.Tensor:
    """Return the gradient of the pooled rows for a sum whose terms do not cancel."""
    numbers = torch.arange(call.graph.num_graphs * call.program.hidden_channels, dtype=torch.float64)
    return (1.5 + numbers.cos()).view(call.graph.num_graphs, call.program.hidden_channels).to(call.graph.x.dtype)


def results(call: LayerNetworkCall, *, plain: bool = False, grad_x: bool = True, grad_bonds: bool | None = None) -> dict[str, torch.Tensor]:
    """Return pooled rows, new statistics and all gradients by name, from C++ or in plain PyTorch."""
    grad_bonds = call.graph.bonds is not None if grad_bonds is None else grad_bonds
    for_backward = call._replace(statistics=[] if call.batch_statistics else call.statistics)
    with torch.no_grad():
        if plain:
            pooled, statistics, saved, _ = engine.forward(call, PlainSteps)
            found = engine.backward(for_backward, weights(call), saved, PlainSteps, grad_x=grad_x, grad_bonds=grad_bonds)
        else:
            pooled, statistics, saved = torch.ops.molgcn.layer_network(*call.arguments)
            found = torch.ops.molgcn.layer_network_backward(weights(call), saved, grad_x, grad_bonds, *for_backward.arguments)
    of_x, of_bonds, of_parameters = found
    return {
        "pooled": pooled,
        "statistics": statistics,
        "x": of_x,
        "bonds": of_bonds,
        **dict(zip(call.program.parameters, of_parameters, strict=True)),
    }


def worst(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    """Return the largest relative L2 error, relative to the largest gradient where a gradient cancels to rounding."""
    assert {name: one.shape for name, one in actual.items()} == {name: one.shape for name, one in expected.items()}
    floor = max(1e-2 * max(one.norm().item() for one in expected.values()), 1e-9)
    return max(((actual[name].double() - one).norm() / max(one.norm().item(), floor)).item() for name, one in expected.items())
