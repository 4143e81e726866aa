"""Compare a plain PyG training loop of node classification with the same loop on the fused layers: only the import differs."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import torch
from torch import Tensor
from torch.nn import functional as F

from molgcn.errors import UserError
from molgcn_benchmark.aggregation import times
from molgcn_benchmark.graphs import GraphCase

NETWORKS = ("GCN", "SAGE", "GAT, 8 heads")
FEATURES, HIDDEN, CLASSES = 128, 128, 40  # as on ogbn-arxiv
BOUND = 1e-3  # the largest relative difference of the losses after the first steps


def training_times(network: str, num_layers: int, case: GraphCase, repeats: int) -> dict[str, float]:
    """Return the microseconds of a training step with Adam: "fused", "PyG" and, for GCN, "PyG, cached".

    Raises:
        UserError: If the losses of the first steps differ.
    """
    from torch_geometric import nn as pyg

    from molgcn import nn as ours

    torch.manual_seed(0)
    networks = {"fused": _Network(ours, "Fused", network, num_layers), "PyG": _Network(pyg, "", network, num_layers)}
    if network == "GCN":
        networks["PyG, cached"] = _Network(pyg, "", network, num_layers, cached=True)
    device = case.edge_index.device
    x = torch.randn(case.num_nodes, FEATURES, device=device)
    y = torch.randint(0, CLASSES, (case.num_nodes,), device=device)
    start = networks["fused"].state_dict()
    for made in networks.values():
        made.load_state_dict(start)
    steps = {name: _step(made.to(device), x, case.edge_index, y) for name, made in networks.items()}
    losses = {name: [step().item() for _ in range(3)][-1] for name, step in steps.items()}
    for name, loss in losses.items():
        if not abs(loss - losses["PyG"]) < BOUND * losses["PyG"]:
            raise UserError(f"{network} on {case.title} is wrong: its loss is {loss:.5f} with {name}, and {losses['PyG']:.5f} with PyG.")
    return times(dict(steps), device, repeats, capture=False)


class _Network(torch.nn.Module):
    """Layers with relu between them, from PyG or from here."""

    def __init__(self, library: ModuleType, prefix: str, network: str, num_layers: int, **options: bool) -> None:
        super().__init__()
        kind, _, heads = network.partition(", ")
        layer = getattr(library, f"{prefix}{kind}Conv")
        self.layers = torch.nn.ModuleList()
        for number in range(num_layers):
            width = FEATURES if number == 0 else HIDDEN
            if number == num_layers - 1:
                self.layers.append(layer(width, CLASSES, **options))
            else:
                self.layers.append(layer(width, HIDDEN // 8, heads=8) if heads else layer(width, HIDDEN, **options))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = F.relu(layer(x, edge_index))
        out: Tensor = self.layers[-1](x, edge_index)
        return out


def _step(network: torch.nn.Module, x: Tensor, edge_index: Tensor, y: Tensor) -> Callable[[], Tensor]:
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(network(x, edge_index), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
