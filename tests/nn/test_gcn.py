"""The model has the documented names, shapes, initialisation and equation, on PyG's layers."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch_geometric.data import Batch, Data
from torch_geometric.utils import add_remaining_self_loops, to_dense_adj

from molgcn.data import PackedMolecules
from molgcn.errors import UserError
from molgcn.nn import GCN

OPTIONS = [
    {},
    {"norm": "batch"},
    {"norm": "layer", "residual": True},
    {"embed": True, "last_activation": True, "norm": "batch", "head_layers": 2},
    {"add_self_loops": False, "pool": "sum"},
    {"pool": "max", "residual": True, "last_activation": True},
]


@pytest.fixture
def molecules() -> list[Data]:
    generator = torch.Generator().manual_seed(3)
    graphs = []
    for size in (1, 2, 5, 9):
        bonds = torch.randint(0, size, (2, size), generator=generator)
        bonds = bonds[:, bonds[0] != bonds[1]]
        x = torch.randn(size, 6, generator=generator, dtype=torch.double)
        graphs.append(Data(x=x, edge_index=torch.cat([bonds, bonds.flip(0)], dim=1), y=torch.zeros(1, 2)))
    return graphs


def dense_forward(model: GCN, data: Data) -> torch.Tensor:
    """Return the prediction for one molecule by the docstring's equation, with dense matrices."""
    n = data.num_nodes
    edge_index = add_remaining_self_loops(data.edge_index, num_nodes=n)[0] if model.add_self_loops else data.edge_index
    adjacency = to_dense_adj(edge_index, max_num_nodes=n)[0].double() if edge_index.numel() else torch.zeros(n, n, dtype=torch.double)
    scale = adjacency.sum(0).pow(-0.5)
    scale[torch.isinf(scale)] = 0
    adjacency = scale[:, None] * adjacency.T * scale[None, :]
    h = data.x if model.embed is None else data.x @ model.embed.weight.T
    for i, conv in enumerate(model.convs):
        out = adjacency @ h @ conv.lin.weight.T + conv.bias
        last = i == model.num_layers - 1
        if not last or model.last_activation:
            out = torch.relu(model.norms[i](out) if model.norm else out)
        h = out + h if model.residual and out.shape == h.shape else out
    pooled = {"mean": h.mean(0), "sum": h.sum(0), "max": h.max(0).values}[model.pool]
    return model.head(pooled)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_equation_in_float64(options, molecules):
    torch.manual_seed(0)
    model = GCN(6, 8, 3, 2, backend="pyg", **options).double().eval()
    for norm in model.norms:
        torch.nn.init.uniform_(norm.weight, 0.5, 1.5)
    prediction = model(Batch.from_data_list(molecules))
    expected = torch.stack([dense_forward(model, data) for data in molecules])
    torch.testing.assert_close(prediction, expected, rtol=1e-12, atol=1e-12)


def test_graph_batch_and_pyg_batch_give_the_same(molecules):
    model = GCN(6, 8, 3, 2, backend="pyg").eval()
    packed = PackedMolecules.from_pyg(molecules)
    from_pyg = model(Batch.from_data_list([data.clone().apply(lambda t: t.float() if t.is_floating_point() else t) for data in molecules]))
    torch.testing.assert_close(model(packed.batch(range(4))), from_pyg, rtol=1e-6, atol=1e-6)


def test_gradient_of_assigned_features(molecules):
    batch = PackedMolecules.from_pyg(molecules).batch([3, 1])
    batch.x = batch.x.clone().requires_grad_()
    GCN(6, 8, 2, 1, backend="pyg")(batch).sum().backward()
    assert batch.x.grad is not None
    assert batch.x.grad.abs().sum() > 0


def test_state_dict_names():
    names = set(GCN(6, 8, 3, 2, backend="pyg", norm="batch", embed=True, head_layers=1).state_dict())
    statistics = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    assert names == {
        "embed.weight",
        *(f"convs.{i}.{key}" for i in range(3) for key in ("lin.weight", "bias")),
        *(f"norms.{i}.{key}" for i in range(2) for key in statistics),
        *(f"head.{i}.{key}" for i in (0, 2) for key in ("weight", "bias")),
    }
    assert {"head.weight", "head.bias"} < set(GCN(6, 8, 1, 2, backend="pyg").state_dict())


def test_published_network_has_505079_parameters():
    model = GCN(28, 172, 16, 1, backend="pyg", embed=True, norm="batch", residual=True, last_activation=True, head_layers=2)
    assert sum(parameter.numel() for parameter in model.parameters()) == 505_079


def test_initialisation_is_pyg_s_and_depends_on_the_seed_alone():
    torch.manual_seed(5)
    model = GCN(6, 8, 2, 1, backend="pyg")
    after = torch.rand(1)
    torch.manual_seed(5)
    bound = (6 / (6 + 8)) ** 0.5
    first = torch.empty(8, 6).uniform_(-bound, bound)
    assert torch.equal(model.convs[0].lin.weight, first)
    assert not model.convs[0].bias.any()
    torch.manual_seed(5)
    again = GCN(6, 8, 2, 1, backend="pyg")
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    assert torch.equal(after, torch.rand(1))


def test_kaiming_keeps_the_scale_through_depth():
    """The mean square of relu(x W) over that of x stays near 1, which glorot halves at every layer of equal width."""
    ratios = {}
    for init in ("glorot", "kaiming"):
        torch.manual_seed(0)
        model = GCN(256, 256, 1, 1, backend="pyg", init=init)
        x = torch.randn(512, 256).relu()
        ratios[init] = float(F.linear(x, model.convs[0].lin.weight.detach()).relu().square().mean() / x.square().mean())
    assert ratios["kaiming"] == pytest.approx(1.0, rel=0.1)
    assert ratios["glorot"] == pytest.approx(0.5, rel=0.1)


def test_dropout_only_in_training(molecules):
    model = GCN(6, 32, 3, 1, backend="pyg", dropout=0.5)
    batch = PackedMolecules.from_pyg(molecules).batch(range(4))
    assert not torch.equal(model(batch), model(batch))
    model.eval()
    assert torch.equal(model(batch), model(batch))


def test_models_can_be_copied():
    model = GCN(6, 8, 2, 1, backend="pyg")
    assert repr(copy.deepcopy(model)) == repr(model) == "GCN(6, 8, num_layers=2, out_channels=1, conv='gcn', backend='pyg')"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norm": "group"}, "model.norm=group"),
        ({"pool": "median"}, "model.pool=median"),
        ({"dropout": 1.0}, "model.dropout=1.0"),
        ({"head_layers": 4}, "model.head_layers=4"),
        ({"init": "zeros"}, "model.init=zeros"),
        ({"num_layers": 0}, "model.num_layers=0"),
        ({"hidden_channels": 0}, "model.hidden_channels=0"),
        ({"in_channels": 0}, "in_channels=0: expected at least one feature"),
        ({"out_channels": 0}, "out_channels=0: expected at least one target"),
        ({"backend": "dgl"}, "backend=dgl is unknown"),
        ({"backend": "pyg", "strategy": "layer"}, "backend.strategy=layer belongs to backend=fused"),
        ({"strategy": "warp"}, "backend.strategy=warp is unknown"),
    ],
)
def test_options_out_of_range(options, message):
    with pytest.raises(UserError, match=message):
        GCN(**{"in_channels": 6, "hidden_channels": 8, "num_layers": 2, "out_channels": 1, "backend": "pyg", **options})
