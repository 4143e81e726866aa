"""A relu that float32 leaves on the other side of zero than float64 shows in a molecule's gradient: count such molecules."""

from __future__ import annotations

import copy
from itertools import product

import pytest
import torch
from compiler import needs_extension
from torch import Tensor
from torch_geometric.data import Batch, Data

from molgcn.nn import MoleculeNet

DEVICES = [pytest.param("cpu", marks=[needs_extension, pytest.mark.slow]), pytest.param("cuda", marks=pytest.mark.gpu)]
MOLECULES, ATOMS, FEATURES, BONDS = 2_000, 18, 9, 4
SEEDS = {"cpu": 1, "cuda": 5}  # draws of molecules and weights; of a single one, counts differ by a factor of two from chance


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


def counts(conv: str, norm: str | None, seed: int, device: str) -> tuple[int, int]:
    """Return how many molecules are off by PyG and by our operators, on the same inputs."""
    torch.manual_seed(seed)
    batch = random_molecules()
    edge_channels = BONDS if conv in ("gine", "gcn_edge") else None
    model = MoleculeNet(FEATURES, 64, 8, 1, conv=conv, edge_channels=edge_channels, norm=norm, residual=True, embed=True, backend="pyg")
    model = model.to(device)
    double, batch = copy.deepcopy(model).double(), batch.to(device)
    wide = copy.copy(batch)
    wide.x, wide.edge_attr = batch.x.double(), batch.edge_attr.double()
    right = gradients(double, wide)
    pyg, ours = (molecules_off(model.on_backend(backend), batch, right) for backend in ("pyg", "fused"))
    return pyg, ours


@pytest.mark.parametrize("device", DEVICES)
def test_at_most_twice_as_many_as_pyg(device):
    """A network has few relus that are this close to zero, so that counts of all networks and draws are added up."""
    cases = list(product(("gcn", "gin", "gine", "gcn_edge", "sage"), (None, "layer"), range(SEEDS[device])))
    found = {f"{conv}, norm {norm}, seed {seed}": counts(conv, norm, seed, device) for conv, norm, seed in cases}
    pyg, ours = (sum(each) for each in zip(*found.values(), strict=True))
    assert ours <= 2 * pyg, found
