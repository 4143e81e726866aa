"""A model's loss is that of its predictions, whichever operators compute it."""

import pytest
import torch
from compiler import needs_extension
from torch import nn
from torch.nn import functional as F

from molgcn.data import PackedMolecules
from molgcn.nn import GCN
from molgcn.ops import Objective
from molgcn.ops.head_loss import loss_of

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@needs_extension
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "options",
    [{}, {"norm": "batch"}, {"norm": "layer", "residual": True}, {"hidden_channels": 128}, {"head_layers": 1}, {"embed": True}],
    ids=str,
)
def test_a_models_loss_is_that_of_its_prediction(options, dtype, device):
    torch.manual_seed(0)
    batch = PackedMolecules.from_smiles(["CCO", "CCN", "C1CC1", "CNC"], num_workers=0).batch([0, 1, 2, 3])
    model = GCN(11, **{"hidden_channels": 32, "num_layers": 3, "out_channels": 2, "backend": "fused", **options}).to(device, dtype)
    batch = batch.to(device) if dtype == torch.float32 else batch.to(device).double()
    target, mean, std = (torch.randn(size, dtype=dtype, device=device).abs() for size in ((4, 2), (2,), (2,)))
    for frozen in (None, model.convs, model.head):
        if frozen is not None:
            model.requires_grad_(True)
            frozen.requires_grad_(False)
        learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
        objective = Objective(target, mean, std, "mse")
        (value, sums), (expected, expected_sums) = model.loss(batch, objective), loss_of(model(batch), objective, fused=False)
        actual = value, sums.to(dtype), *torch.autograd.grad(value, learning)
        right = expected, expected_sums.to(dtype), *torch.autograd.grad(expected, learning)
        torch.testing.assert_close(actual, right, rtol=1e-5, atol=1e-6)


def double(module: nn.Module, inputs: object, output: torch.Tensor) -> torch.Tensor:
    return 2 * output


@pytest.mark.parametrize("backend", [pytest.param("fused", marks=needs_extension), "pyg"])
def test_heads_of_other_kinds_and_hooks(backend):
    torch.manual_seed(0)
    batch = PackedMolecules.from_smiles(["CCO", "CCN"], num_workers=0).batch([0, 1])
    objective = Objective(torch.randn(2, 1), torch.zeros(1), torch.ones(1), "mse")
    model = GCN(11, 8, 2, 1, backend=backend)
    heads = [nn.Linear(8, 1), nn.Linear(8, 1, bias=False), nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 1))]
    heads.append(nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 1)))
    for hooked in (None, "head", "model"):
        for head in heads:
            model.head = head
            hook = None if hooked is None else (model if hooked == "model" else head).register_forward_hook(double)
            expected = F.mse_loss(model(batch), objective.target)
            torch.testing.assert_close(model.loss(batch, objective)[0], expected, rtol=1e-6, atol=1e-6)
            if hook is not None:
                hook.remove()


@needs_extension
def test_under_autocast_the_head_is_as_autocast_says():
    batch = PackedMolecules.from_smiles(["CCO", "CCN"], num_workers=0).batch([0, 1])
    objective = Objective(torch.randn(2, 1), torch.zeros(1), torch.ones(1), "mse")
    model = GCN(11, 8, 2, 1, backend="fused")
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(model.loss(batch, objective)[0], loss_of(model(batch), objective, fused=True)[0])
