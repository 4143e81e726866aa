"""Compare the fused layers for any graph with PyG's: forward and backward of one layer, with gradients of input and parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from molgcn.errors import UserError
from molgcn_benchmark.aggregation import Calls, times
from molgcn_benchmark.graphs import GraphCase
from molgcn_benchmark.memory import peak_mb

# Largest relative L2 differences from PyG of the output and of the input's gradient, both float32. GAT's is larger: where rounding takes a
# score across zero, the leaky relu has another slope.
BOUNDS = (1e-5, 1e-3)
LAYERS = ("GCN", "GIN", "SAGE", "GAT, 8 heads", "GATv2, 8 heads")
EDGE_LAYERS = ("GINE",)  # those that take edge_attr, whose gradient is computed too

_CAPTURABLE = {"GCN": ("PyG, cached",), "GIN": ("PyG",), "SAGE": ("PyG",)}  # PyG's other forms wait for the device


@dataclass(frozen=True)
class LayerTimes:
    """The times of forward and backward, and the peak memory beyond the inputs.

    PyG's numbers are those of its faster form: as written or, for GCN, with its graph cached.

    Attributes:
        fused: microseconds of the fused layer, eager.
        fused_captured: microseconds of the fused layer as a replay of a CUDA graph.
        pyg: microseconds of PyG's layer, eager.
        pyg_captured: microseconds of PyG's layer as a replay of a CUDA graph; None where it waits for the device.
        fused_memory: peak memory of the fused layer, in MB.
        pyg_memory: peak memory of PyG's layer, in MB.
    """

    fused: float
    fused_captured: float
    pyg: float
    pyg_captured: float | None
    fused_memory: float
    pyg_memory: float


def layer_times(name: str, case: GraphCase, width: int, repeats: int) -> LayerTimes:
    """Measure one layer on one graph.

    Raises:
        UserError: if the fused layer's results differ from PyG's.
    """
    device = case.edge_index.device
    calls = _calls(name, case, width)
    memory = {kind: peak_mb(call) for kind, call in calls.items()}
    eager = times(dict(calls), device, repeats, capture=False)
    fixed: Calls = {kind: call for kind, call in calls.items() if kind == "fused" or kind in _CAPTURABLE.get(name, ())}
    replayed = times(fixed, device, repeats, capture=True)
    pyg = _faster_of_pyg(eager)
    return LayerTimes(eager["fused"], replayed["fused"], eager[pyg], replayed.get(pyg), memory["fused"], memory[pyg])


def eager_times(name: str, case: GraphCase, width: int, repeats: int) -> tuple[float, float]:
    """Return the microseconds of the fused layer and of PyG's faster form, eager, on any device.

    Raises:
        UserError: if the fused layer's results differ from PyG's.
    """
    eager = times(dict(_calls(name, case, width)), case.edge_index.device, repeats, capture=False)
    return eager["fused"], eager[_faster_of_pyg(eager)]


def _faster_of_pyg(eager: dict[str, float]) -> str:
    return min((kind for kind in eager if kind != "fused"), key=lambda kind: eager[kind])


def _calls(name: str, case: GraphCase, width: int) -> dict[str, Callable[[], tuple[Tensor, ...]]]:
    """Return forward and backward of the fused layer and of PyG's forms, which have been found to agree."""
    device = case.edge_index.device
    x = torch.randn(case.num_nodes, width, device=device, requires_grad=True)
    inputs = [x]
    if name in EDGE_LAYERS:
        inputs.append(torch.randn(case.edge_index.shape[1], width, device=device, requires_grad=True))
    grad = torch.randn_like(x)
    calls = {kind: _step(layer, inputs, case.edge_index, grad) for kind, layer in _layers(name, width, device).items()}
    _check(f"{name} on {case.title}", calls)
    return calls


def _layers(name: str, width: int, device: torch.device) -> dict[str, torch.nn.Module]:
    from torch_geometric import nn as pyg

    from molgcn import nn as ours

    kind, _, heads = name.partition(", ")
    arguments: tuple[Any, ...] = (torch.nn.Linear(width, width),) if kind in ("GIN", "GINE") else (width, width)
    options: dict[str, Any] = {}
    if heads:
        arguments, options = (width, width // 8), {"heads": 8}
    fused = getattr(ours, f"Fused{kind}Conv")(*arguments, **options)
    made = {"fused": fused, "PyG": getattr(pyg, f"{kind}Conv")(*arguments, **options)}
    if kind == "GCN":
        made["PyG, cached"] = pyg.GCNConv(*arguments, cached=True)
    for layer in made.values():
        layer.load_state_dict(fused.state_dict())
    return {kind: layer.to(device) for kind, layer in made.items()}


def _step(layer: torch.nn.Module, inputs: list[Tensor], edge_index: Tensor, grad: Tensor) -> Callable[[], tuple[Tensor, ...]]:
    parameters, (x, *edge_attr) = list(layer.parameters()), inputs

    def step() -> tuple[Tensor, ...]:
        out = layer(x, edge_index, *edge_attr)
        return out, *torch.autograd.grad(out, [*inputs, *parameters], grad)

    return step


def _check(title: str, calls: dict[str, Callable[[], tuple[Tensor, ...]]]) -> None:
    for actual, expected, bound in zip(calls["fused"](), calls["PyG"](), BOUNDS, strict=False):
        error = ((actual - expected).norm() / expected.norm()).item()
        if not error < bound:
            raise UserError(f"{title} is wrong: it differs from PyG's by {error:.1e}.")
