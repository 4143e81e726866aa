import pytest
import torch
import torch.nn.functional as F

from molgcn.config import TrainingConfig
from molgcn.training.losses import masked_loss

REFERENCE = {"mse": F.mse_loss, "l1": F.l1_loss, "huber": lambda p, y: F.huber_loss(p, y, delta=0.5)}


@pytest.mark.parametrize("name", REFERENCE)
def test_missing_targets_weigh_nothing(name):
    torch.manual_seed(0)
    prediction = torch.randn(7, 3, dtype=torch.double, requires_grad=True)
    target = torch.randn(7, 3, dtype=torch.double)
    target[torch.rand(7, 3) < 0.4] = torch.nan
    known = ~target.isnan()
    total, count = masked_loss(TrainingConfig(loss=name, huber_delta=0.5))(prediction, target)
    expected = REFERENCE[name](prediction[known], target[known])
    torch.testing.assert_close(total / count, expected, rtol=1e-14, atol=0)
    (gradient,) = torch.autograd.grad(total, prediction)
    assert not gradient[~known].any()
    assert gradient[known].all()


def test_nothing_known_is_zero_without_nan():
    prediction = torch.randn(4, 2, requires_grad=True)
    total, count = masked_loss(TrainingConfig())(prediction, torch.full((4, 2), torch.nan))
    assert count == 0
    total.backward()
    assert total == 0
    assert torch.equal(prediction.grad, torch.zeros(4, 2))
