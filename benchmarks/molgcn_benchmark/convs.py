"""Compare one layer, `FusedGCNConv`, with PyG's `GCNConv` on batches of molecules and on larger graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from molgcn.data import PackedMolecules
from molgcn.errors import UserError
from molgcn_benchmark.measure import interleaved, medians

WORKS = ("forward", "forward and backward", "with the edge weights' gradient")
BOUND = 1e-5  # largest relative L2 error against float64


@dataclass(frozen=True)
class Case:
    """A graph, and the widths of the layer."""

    name: str
    edge_index: Tensor
    num_nodes: int
    in_channels: int
    out_channels: int


@dataclass(frozen=True)
class Row:
    """The milliseconds of each layer for one case and kind of work.

    "new edges" is FusedGCNConv on edges that it has not seen before.
    """

    case: Case
    work: str
    milliseconds: dict[str, float]


def molecule_case(molecules: PackedMolecules, batch_size: int, width: int) -> Case:
    """Return a batch of molecules, drawn at random with replacement.

    Args:
        molecules: the set to draw from.
        batch_size: the number of molecules.
        width: the number of channels before and after the layer.
    """
    chosen = torch.randint(0, len(molecules), (batch_size,), generator=torch.Generator().manual_seed(0))
    batch = molecules.batch(chosen.numpy())
    return Case(f"{batch_size:,} molecules", batch.edge_index, batch.num_nodes, width, width)


def random_case(num_nodes: int, num_edges: int, in_channels: int, out_channels: int) -> Case:
    """Return a graph with random edges in random order, the worst case for a cache."""
    edges = torch.randint(0, num_nodes, (2, num_edges), generator=torch.Generator().manual_seed(0))
    return Case("random graph", edges, num_nodes, in_channels, out_channels)


def compare(case: Case, repeats: int) -> list[Row]:
    """Time every kind of work, after a check of all layers' outputs and gradients against PyG in float64.

    Raises:
        UserError: for a layer whose results are wrong.
    """
    torch.manual_seed(0)
    x = torch.randn(case.num_nodes, case.in_channels, requires_grad=True)
    grad = torch.randn(case.num_nodes, case.out_channels)
    edge_weight = torch.rand(case.edge_index.shape[1])
    layers = _layers(case)
    expected = _forward_backward(layers["pyg"], x, case.edge_index, edge_weight, grad, torch.float64)
    for name in ("fused", "pyg"):
        actual = _forward_backward(layers[name], x, case.edge_index, edge_weight, grad, torch.float32)
        error = max(((a.double() - e).norm() / e.norm()).item() for a, e in zip(actual, expected, strict=True))
        if error > BOUND:
            raise UserError(f"{name} is wrong on {case.name}: relative error {error:.1e} against float64.")
    inputs = _inputs(case, edge_weight)
    rows = []
    for work in WORKS:
        names = [name for name in layers if work != WORKS[2] or name in ("fused", "pyg")]
        calls = {name: _call(layers[name], x, inputs[name], grad, work) for name in names}
        if work == WORKS[0]:
            calls["new edges"] = torch.no_grad()(lambda: layers["fused"](x, case.edge_index.clone()))
        rows.append(Row(case, work, medians(interleaved(calls, x.device, repeats))))
    return rows


def _layers(case: Case) -> dict[str, nn.Module]:
    """Return the layers by name: FusedGCNConv, GCNConv as written, and GCNConv for a graph that was normalised in advance."""
    from torch_geometric.nn import GCNConv

    from molgcn.nn import FusedGCNConv

    widths = (case.in_channels, case.out_channels)
    layers: dict[str, nn.Module] = {
        "fused": FusedGCNConv(*widths),
        "pyg": GCNConv(*widths),
        "hoisted": GCNConv(*widths, normalize=False),
        "csr": GCNConv(*widths, normalize=False),
    }
    for layer in layers.values():
        layer.load_state_dict(layers["fused"].state_dict())
    return layers


def _inputs(case: Case, edge_weight: Tensor) -> dict[str, tuple]:
    from torch_geometric.nn.conv.gcn_conv import gcn_norm
    from torch_geometric.utils import to_torch_csr_tensor

    edges, weights = gcn_norm(case.edge_index, None, case.num_nodes)
    matrix = to_torch_csr_tensor(edges.flip(0), weights, (case.num_nodes, case.num_nodes))
    plain = (case.edge_index, edge_weight)
    return {"fused": plain, "pyg": plain, "hoisted": (edges, weights), "csr": (matrix,)}


def _call(layer: nn.Module, x: Tensor, inputs: tuple, grad: Tensor, work: str) -> Callable[[], object]:
    if work == WORKS[2]:
        edge_weight = inputs[1].clone().requires_grad_()
        return lambda: layer(x, inputs[0], edge_weight).backward(grad)
    inputs = inputs[:1] if getattr(layer, "normalize", False) else inputs
    if work == WORKS[0]:
        return torch.no_grad()(lambda: layer(x, *inputs))
    return lambda: layer(x, *inputs).backward(grad)


def _forward_backward(
    layer: nn.Module, x: Tensor, edge_index: Tensor, edge_weight: Tensor, grad: Tensor, dtype: torch.dtype
) -> list[Tensor]:
    layer = layer.to(dtype)
    x, edge_weight = (tensor.detach().to(dtype).requires_grad_() for tensor in (x, edge_weight))
    out = layer(x, edge_index, edge_weight)
    gradients = torch.autograd.grad(out, [x, edge_weight, *layer.parameters()], grad.to(dtype))
    layer.float()
    return [out.detach(), *gradients]
