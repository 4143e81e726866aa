"""The exported form gives the predictions of the network itself, with every option."""

import pytest
import torch

from molgcn.data import PackedMolecules
from molgcn.nn import GCN
from molgcn.nn.exported import ExportedNetwork
from molgcn.nn.output_layers import Rescale

SMILES = ["CCO", "c1ccccc1O", "C", "CC(=O)N", "C1CC1"]
OPTIONS = [
    {"pool": pool, "norm": norm, "add_self_loops": loops, **more}
    for pool in ("mean", "sum", "max")
    for norm in (None, "batch", "layer")
    for loops in (True, False)
    for more in ({}, {"residual": True, "embed": True, "last_activation": True, "head_layers": 2, "dropout": 0.5})
]


def trained(**options):
    """Return a network whose running statistics and norms have changed from their initial values."""
    torch.manual_seed(0)
    model = GCN(11, 16, 3, 2, backend="pyg", **options)
    with torch.no_grad():
        for norm in model.norms:
            norm.weight.uniform_(0.5, 2)
            norm.bias.normal_()
            if hasattr(norm, "running_mean"):
                norm.running_mean.normal_()
                norm.running_var.uniform_(0.5, 2)
    return model.double().eval()


def check(model, x, edge_index, batch):
    """Assert equal results up to the order of sums, to 1e-12 in float64."""
    from torch_geometric.data import Batch

    mean, std = torch.tensor([1.0, -2.0]).double(), torch.tensor([3.0, 0.5]).double()
    data = Batch(x=x, edge_index=edge_index, batch=batch)
    data._num_graphs = int(batch.max()) + 1
    with torch.no_grad():
        expected = model(data) * std + mean
        actual = ExportedNetwork(model, Rescale(mean, std))(x, edge_index, batch)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_option(options):
    batch = PackedMolecules.from_smiles(SMILES, features="qm9").batch(slice(None))
    check(trained(**options), batch.x.double(), batch.edge_index, batch.batch)


@pytest.mark.parametrize("loops", [True, False])
def test_self_loops_duplicate_bonds_and_lone_atoms(loops):
    edge_index = torch.tensor([[0, 0, 1, 1, 0, 2], [0, 1, 0, 0, 1, 2]])  # one self-loop each in two molecules, one bond twice
    check(trained(add_self_loops=loops), torch.randn(4, 11).double(), edge_index, torch.tensor([0, 0, 1, 2]))


def test_weights_are_copies():
    model = trained(norm="batch")
    exported = ExportedNetwork(model, Rescale(torch.zeros(2), torch.ones(2)))
    with torch.no_grad():
        for parameter in exported.parameters():
            parameter.zero_()
    assert all(bool(conv.lin.weight.any()) for conv in model.convs)
