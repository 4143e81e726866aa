import pytest
import torch

from molgcn.data import GraphBatch, PackedMolecules
from molgcn.nn import GCN
from molgcn_benchmark.weights import error, exact, steady_model, zero_of


@pytest.fixture(scope="module")
def batch() -> GraphBatch:
    return PackedMolecules.from_smiles(["CCO", "c1ccccc1O", "CC(C)N", "C#N"]).batch(slice(None))


@pytest.mark.parametrize("norm", [None, "layer", "batch"])
def test_exact_is_the_model_in_float64(batch, norm):
    torch.manual_seed(0)
    model = GCN(batch.x.shape[1], 8, 3, 1, backend="pyg", norm=norm)
    outputs, gradients = exact(model, batch)
    mine = model(batch)
    mine.square().mean().backward()
    assert outputs.dtype == torch.double and error(mine, outputs) < 1e-6
    parameters = dict(model.named_parameters())
    assert set(parameters) - set(gradients) == ({"convs.0.bias", "convs.1.bias"} if norm == "batch" else set())
    assert all(error(parameters[name].grad, gradient) < 1e-5 for name, gradient in gradients.items())


@pytest.mark.parametrize("norm", [None, "layer", "batch"])
def test_no_activation_is_near_zero(batch, norm):
    """This holds in the model's own float32, and each feature that can has atoms on both sides of zero."""
    found = []
    model = steady_model(batch.x.shape[1], 8, 4, norm, batch)
    for module in model.norms if norm else model.convs[:-1]:
        module.register_forward_hook(lambda module, inputs, z: found.append(z.detach()))
    model.train()(batch)
    assert len(found) == 3
    for z in found:
        assert (z.abs().amin(dim=0) > 0.015 * (z.amax(dim=0) - z.amin(dim=0))).all()
        assert ((z > 0).any(dim=0) & (z < 0).any(dim=0)).any()


def test_the_same_weights_each_time(batch):
    first, second = (steady_model(batch.x.shape[1], 8, 3, None, batch).state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_zero_lies_in_the_widest_gap():
    """A tenth of the values at either end does not count, and zero lies below a column of one value."""
    columns = torch.tensor([[-100.0, 0, 1, 2, 5, 6, 7, 8, 9, 100], [3.0] * 10, [0.0] * 10, [-4.0] * 10]).T
    assert zero_of(columns[torch.randperm(10)]).tolist() == [3.5, 0.0, -1.0, -8.0]


def test_roundings_do_not_choose_between_equal_gaps():
    """The weights are the same on every machine."""
    column = torch.tensor([0.0, 1, 2, 5, 6, 9, 10, 13, 14, 15], dtype=torch.float64)[:, None]
    for seed in range(5):
        noise = 1e-13 * torch.randn(10, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        torch.testing.assert_close(zero_of(column + noise), torch.full((8,), 3.5, dtype=torch.float64))


def test_zero_lies_outside_where_gaps_are_narrow():
    column = torch.arange(1000.0)
    zero = zero_of(column[torch.randperm(1000)][:, None].expand(-1, 4))
    deviation = column.std() / 10
    torch.testing.assert_close(zero, torch.stack([-deviation, -deviation, -deviation, 999 + deviation]))


def test_the_head_adds_up(batch):
    """The head's output is at least half of the sum of its terms' absolute values, its bias included."""
    model = steady_model(batch.x.shape[1], 8, 4, None, batch)
    given = []
    model.head.register_forward_pre_hook(lambda head, inputs: given.append(inputs[0].detach()))
    output = model(batch).detach()[:, 0]
    weight, bias = (parameter.detach()[0] for parameter in model.head.parameters())
    assert output.abs().sum() > 0.5 * (given[0].abs() @ weight.abs() + bias.abs()).sum()
    assert bias >= 0
