"""Networks on random batches, and their forward and backward passes by two implementations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from stack_cases import random_batch
from torch import Tensor

from molgcn.nn.network_steps import NetworkOptions, program_of
from molgcn.ops.gcn_tile_plan import next_fit
from molgcn.ops.graph import Graph
from molgcn.ops.layer_network import engine
from molgcn.ops.layer_network.call import LayerNetworkCall, Options
from molgcn.ops.layer_network.engine import StepsOf

NETWORKS = {
    "gin": {"conv": "gin", "norm": "batch", "train_eps": True, "mlp_norm": True, "residual": True, "dropout": 0.3},
    "gin, layer norm, sum": {"conv": "gin", "norm": "layer", "residual": True, "dropout": 0.2, "pool": "sum", "last_activation": False},
    "gine": {"conv": "gine", "edge_channels": 4, "norm": "batch", "train_eps": True, "residual": True},
    "gine, no norm, max": {"conv": "gine", "edge_channels": 4, "pool": "max"},
    "gcn_edge": {"conv": "gcn_edge", "edge_channels": 4, "norm": "batch", "dropout": 0.3, "last_activation": False},
    "gcn": {"conv": "gcn", "norm": "batch", "residual": True, "pool": "max"},
    "gcn without loops": {"conv": "gcn", "norm": "layer", "add_self_loops": False},
    "dmpnn": {"conv": "dmpnn", "edge_channels": 4, "dropout": 0.3},
    "dmpnn, undirected": {"conv": "dmpnn", "edge_channels": 4, "undirected": True},
    "dmpnn, biases, no bonds": {"conv": "dmpnn", "message_bias": True, "activation": "silu"},
    "gat": {"conv": "gat", "edge_channels": 4, "heads": 2, "norm": "batch", "residual": True, "attention_dropout": 0.3},
    "gat, mean of heads": {"conv": "gat", "heads": 3, "concat": False, "linear_residual": True, "dropout": 0.2},
    "gatv2": {"conv": "gatv2", "edge_channels": 4, "heads": 2, "attention_dropout": 0.2, "dropout": 0.3, "norm": "layer"},
    "gatv2, shared": {"conv": "gatv2", "heads": 5, "concat": False, "share_weights": True, "bias": False, "pool": "max"},
    "gated_gcn": {"conv": "gated_gcn", "edge_channels": 4, "norm": "batch", "residual": True, "dropout": 0.3},
    "gated_gcn, layer": {"conv": "gated_gcn", "edge_channels": 10, "norm": "layer", "residual": True, "activation": "silu"},
    "gated_gcn, feed-forward": {"conv": "gated_gcn", "edge_channels": 10, "norm": "batch", "residual": True, "feed_forward": True},
    "gated_gcn, no norm": {"conv": "gated_gcn", "edge_channels": 4, "pool": "max", "last_activation": False},
    "sage": {"conv": "sage", "aggr": "mean", "normalize": True, "project": True},
    "sage, batch norm": {"conv": "sage", "norm": "batch", "residual": True},
    "sage, max": {"conv": "sage", "aggr": "max", "norm": "layer", "root_weight": False},
    "sage, sum": {"conv": "sage", "aggr": "sum", "normalize": True, "dropout": 0.4},
    "feed-forward": {"conv": "gin", "norm": "batch", "feed_forward": True, "residual": True, "dropout": 0.3},
    "feed-forward, layer": {"conv": "gcn", "norm": None, "feed_forward": True, "feed_forward_norm": "layer"},
    "feed-forward, none": {"conv": "sage", "norm": None, "feed_forward": True, "feed_forward_norm": None, "residual": True},
    "gelu": {"conv": "gin", "activation": "gelu", "mlp_activation": "silu", "norm": "batch", "mlp_norm": True, "dropout": 0.3},
    "silu": {"conv": "gcn_edge", "edge_channels": 4, "activation": "silu", "norm": "layer", "residual": True, "dropout": 0.3},
    "leaky relu": {"conv": "gin", "activation": "leaky_relu", "mlp_activation": "gelu", "residual": True},
    "elu": {"conv": "gcn", "activation": "elu", "norm": "batch", "residual": True, "feed_forward": True},
    "tanh": {"conv": "sage", "activation": "tanh", "feed_forward": True, "feed_forward_norm": None, "dropout": 0.2},
    "every layer": {"conv": "gine", "edge_channels": 4, "readout": "all", "norm": "batch", "residual": True, "dropout": 0.3},
    "every layer, relu": {"conv": "gcn", "readout": "all", "pool": "sum", "dropout": 0.3},
    "every layer, max": {"conv": "gin", "readout": "all", "pool": "max", "norm": "layer", "feed_forward": True},
    "every layer, states": {"conv": "gcn_edge", "edge_channels": 4, "readout": "all", "pool": "none", "norm": "layer"},
}


def network_options(conv: str, in_channels: int, hidden_channels: int, num_layers: int, **options: Any) -> NetworkOptions:
    """Return the options of a network, the layer's own among them."""
    own = {name: options.pop(name) for name in list(options) if name not in NetworkOptions._fields}
    return NetworkOptions(conv, in_channels, hidden_channels, num_layers, **options, settings=tuple(own.items()))


def options_of(network: str, hidden: int = 10, in_channels: int = 7, num_layers: int = 2) -> NetworkOptions:
    """Return the options of one of :data:`NETWORKS`, with at least `hidden` channels: as many for each head that stands side by side."""
    own = NETWORKS[network]
    hidden += -hidden % own["heads"] if "heads" in own and own.get("concat", True) else 0
    return network_options(in_channels=in_channels, hidden_channels=hidden, num_layers=num_layers, **own)


SIZES = [5, 9, 0, 18, 1, 30, 1, 7]


def random_call(
    options: NetworkOptions,
    *,
    sizes: list[int] = SIZES,
    training: bool = True,
    coded: bool = True,
    kinds: int = 5,
    dtype: torch.dtype = torch.float64,
    device: str = "cpu",
    seed: int = 0,
) -> LayerNetworkCall:
    """Return a call with random parameters, duplicate bonds and self-loops.

    Args:
        options: the network; dropout is for training.
        sizes: atoms of each molecule.
        training: see :class:`Options`.
        coded: whether the bonds' rows are a table of distinct rows; otherwise each bond has its own row.
        kinds: number of rows of the table.
        dtype: dtype of all floating-point tensors.
        device: device of all tensors.
        seed: seed of all random numbers.
    """
    program = program_of(options._replace(training=True) if training else options._replace(dropout=0.0))
    batch = random_batch([size for size in sizes if size] or [1], program.in_channels, seed, bonds_per_atom=1.2 if any(sizes) else 0.0)
    num_atoms = sum(sizes)
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(device, dtype)

    ptr = torch.tensor([0, *sizes]).cumsum(0).to(device, torch.int32)
    num_bonds = batch.col.shape[0]
    bonds = None if program.edge_channels is None else draw(kinds if coded else num_bonds, program.edge_channels)
    code = torch.randint(kinds, (num_bonds,), generator=generator, dtype=torch.int32).to(device) if coded and bonds is not None else None
    graph = Graph(batch.x[:num_atoms].to(device, dtype), bonds, ptr, batch.rowptr[: num_atoms + 1].to(device), batch.col.to(device), code)
    largest = max(sizes, default=0)
    tile_nodes = 64 if largest <= 64 else 128
    graph = graph._replace(tile_ptr=next_fit(ptr, tile_nodes), tile_nodes=tile_nodes, large_molecules=largest > 128)
    parameters = [
        draw(*shape) * (shape[-1] ** -0.5 if len(shape) == 2 else 0.3) + (len(shape) == 1) for shape in program.parameters.values()
    ]
    statistics = [draw(*shape).abs() + 0.5 for shape in program.statistics.values()]
    seed_of_dropout = torch.tensor([(5 << 33) + 7], device=device)
    return LayerNetworkCall(graph, program, parameters, statistics, seed_of_dropout, Options(training))


def padded(call: LayerNetworkCall, poison: float, atoms: int = 7) -> LayerNetworkCall:
    """Return the call with padding for two molecules, some atoms and nine bonds, filled with `poison`."""
    graph = call.graph
    bonds = graph.bonds
    if bonds is not None and graph.code is None:
        bonds = torch.cat([bonds, bonds.new_full((9, bonds.shape[1]), poison)])
    return call._replace(
        graph=graph._replace(
            x=torch.cat([graph.x, graph.x.new_full((atoms, graph.x.shape[1]), poison)]),
            bonds=bonds,
            ptr=torch.cat([graph.ptr, graph.ptr[-1:], graph.ptr[-1:]]),
            rowptr=torch.cat([graph.rowptr, graph.rowptr[-1:].expand(atoms)]),
            col=torch.cat([graph.col, graph.col.new_full((9,), 10**6)]),
            code=None if graph.code is None else torch.cat([graph.code, graph.code.new_full((9,), 10**6)]),
        )
    )


@dataclass
class Found:
    """The results of both passes of a network by name; running statistics are present only if the network has them."""

    outputs: dict[str, Tensor]
    gradients: dict[str, Tensor]


def passes(call: LayerNetworkCall, steps_of: StepsOf, *, poison: float = 0.0) -> Found:
    """Return the outputs of the forward pass and the gradients of the backward pass for a fixed gradient of the pooled rows.

    Args:
        call: the network and the batch.
        steps_of: the implementation.
        poison: gradient of molecules without atoms, or of rows of padding where molecules are not pooled.
    """
    with torch.no_grad():
        out = engine.forward(call, steps_of)
        grad = torch.sin(torch.arange(out.pooled.numel(), device=out.pooled.device, dtype=torch.float64)).view_as(out.pooled).to(out.pooled)
        of_nothing = call.graph.ptr.diff() == 0 if call.program.pool != "none" else slice(int(call.graph.ptr[-1]), None)
        grad[of_nothing] = poison
        if call.batch_statistics:
            call = call._replace(statistics=[])
        has_bonds = call.graph.bonds is not None
        of_x, of_bonds, found = engine.backward(call, grad, out.saved, steps_of, grad_x=True, grad_bonds=has_bonds)
    gradients = dict(zip(call.program.parameters, found, strict=True)) | {"x": of_x} | ({"bonds": of_bonds} if has_bonds else {})
    return Found({"pooled": out.pooled, "statistics": out.new_statistics}, gradients)


def worst_difference(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> tuple[float, str]:
    """Return the largest difference and its tensor's name.

    It is relative to the largest element of the tensor, or of all tensors if that element is only rounding.
    """
    assert actual.keys() == expected.keys()
    floor = 1e-3 * max((tensor.abs().max().item() for tensor in expected.values() if tensor.numel()), default=0.0) + 1e-3
    found = [(0.0, "nothing")]
    for name, tensor in expected.items():
        assert actual[name].shape == tensor.shape, name
        if tensor.numel():
            difference = (actual[name].double() - tensor.double()).abs().max().item()
            found.append((difference / max(tensor.abs().max().item(), floor), name))
    return max(found, key=lambda each: (each[0] != each[0], each[0]))


def worst_gradient(actual: Found, expected: Found) -> tuple[float, str]:
    """Return the largest difference of two passes' gradients and its tensor's name; see :func:`worst_difference`."""
    return worst_difference(actual.gradients, expected.gradients)
