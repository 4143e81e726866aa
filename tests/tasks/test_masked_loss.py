import pytest
import torch
import torch.nn.functional as F

from molgcn.config.training import TrainingConfig
from molgcn.tasks.masked_loss import MaskedLoss

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
REFERENCE = {"mse": F.mse_loss, "l1": F.l1_loss, "huber": lambda p, y: F.huber_loss(p, y, delta=0.5)}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", REFERENCE)
def test_missing_targets_weigh_nothing(name, dtype, device):
    torch.manual_seed(0)
    prediction = torch.randn(700, 3, dtype=dtype, device=device, requires_grad=True)
    target = 3 * torch.randn(700, 3, dtype=torch.double, device=device)
    target[torch.rand(700, 3, device=device) < 0.4] = torch.nan
    mean, std = torch.tensor([0.1, 5.0, -2.0], device=device), torch.tensor([1.5, 3.0, 0.1], device=device)
    known = ~target.isnan()
    wide = torch.double if dtype == torch.double else torch.float32
    loss = MaskedLoss(TrainingConfig(loss=name, huber_delta=0.5), fused=True)
    value, sums = loss(prediction, target.to(wide), mean.to(wide), std.to(wide))
    exact = prediction.detach().double().requires_grad_()
    expected = REFERENCE[name](exact[known], ((target - mean.double()) / std.double())[known])
    (expected_gradient,) = torch.autograd.grad(expected, exact)
    torch.testing.assert_close(value.double(), expected, rtol=1e-14 if dtype == torch.double else 1e-6, atol=0)
    assert sums.dtype == torch.double and sums[1] == known.sum()
    torch.testing.assert_close(sums[0] / sums[1], value.double(), rtol=1e-6, atol=0)
    (gradient,) = torch.autograd.grad(2 * value, prediction)
    assert not gradient[~known].any()
    tolerance = {torch.float64: 1e-14, torch.float32: 1e-5, torch.bfloat16: 1e-2}[dtype]
    torch.testing.assert_close(gradient.double(), 2 * expected_gradient, rtol=tolerance, atol=1e-8)


@pytest.mark.parametrize("device", DEVICES)
def test_nothing_known_is_zero_without_nan(device):
    prediction = torch.randn(4, 2, device=device, requires_grad=True)
    mean, std = torch.zeros(2, device=device), torch.ones(2, device=device)
    target, loss = torch.full((4, 2), torch.nan, device=device), MaskedLoss(TrainingConfig(loss="l1"), fused=True)
    value, (total, count) = loss(prediction, target, mean, std)
    value.backward()
    assert value == total == count == 0
    assert torch.equal(prediction.grad, torch.zeros(4, 2, device=device))
