"""A relu that float32 leaves on the other side of zero than float64 shows in a molecule's gradient: count such molecules."""

from __future__ import annotations

import copy

import pytest
import torch
from compiler import needs_extension
from torch import Tensor
from torch_geometric.data import Batch, Data

from molgcn.nn import MoleculeNet

DEVICES = [pytest.param("cpu", marks=[needs_extension, pytest.mark.slow]), pytest.param("cuda", marks=pytest.mark.gpu)]
MOLECULES, ATOMS, FEATURES, BONDS = 2_000, 18, 9, 4


def random_molecules() -> Batch:
    """Return molecules of `ATOMS` atoms: random trees with one ring bond more, and random features."""
    graphs = []
    for _ in range(MOLECULES):
        parents = torch.cat([torch.randint(0, atom, (1,)) for atom in range(1, ATOMS)])
        bonds = torch.cat([torch.stack([torch.arange(1, ATOMS), parents]), torch.tensor([[0], [ATOMS - 1]])], dim=1).unique(dim=1)
        features = torch.randn(bonds.shape[1], BONDS)
        order = torch.argsort(torch.cat([bonds[1], bonds[0]]), stable=True)
        edges, edge_attr = torch.cat([bonds, bonds.flip(0)], dim=1)[:, order], torch.cat([features, features])[order]
        graphs.append(Data(x=torch.randn(ATOMS, FEATURES), edge_index=edges, edge_attr=edge_attr, y=torch.zeros(1, 1)))
    return Batch.from_data_list(graphs)


def molecules_off(model: MoleculeNet, batch: Batch, right: Tensor) -> int:
    """Return how many molecules' gradients differ by more than rounding does: by 1e-4 of their norm."""
    return int(((gradients(model, batch) - right).norm(dim=1) > 1e-4 * right.norm(dim=1)).sum())


def gradients(model: MoleculeNet, batch: Batch) -> Tensor:
    """Return the gradient of the predictions' sum in each molecule's features, float64 [M, ATOMS * FEATURES]."""
    batch = copy.copy(batch)
    batch.x = batch.x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(batch).sum(), batch.x)
    return gradient.double().view(MOLECULES, -1)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("norm", [None, "layer"])
@pytest.mark.parametrize("conv", ["gcn", "gin", "gine", "gcn_edge", "sage"])
def test_at_most_twice_as_many_as_pyg(conv, norm, device):
    """Both counts are of the same inputs; three more make up for chance where few relus are that close to zero."""
    torch.manual_seed(0)
    batch = random_molecules()
    edge_channels = BONDS if conv in ("gine", "gcn_edge") else None
    model = MoleculeNet(FEATURES, 64, 8, 1, conv=conv, edge_channels=edge_channels, norm=norm, residual=True, embed=True, backend="pyg")
    model = model.to(device)
    double, batch = copy.deepcopy(model).double(), batch.to(device)
    wide = copy.copy(batch)
    wide.x, wide.edge_attr = batch.x.double(), batch.edge_attr.double()
    right = gradients(double, wide)
    pyg, ours = (molecules_off(model.on_backend(backend), batch, right) for backend in ("pyg", "fused"))
    print(f"{conv}, norm {norm}, {device}: {pyg} molecules of PyG, {ours} of ours")
    assert ours <= 2 * pyg + 3
