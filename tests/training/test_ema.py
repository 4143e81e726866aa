import torch
from torch import nn

from molgcn.training.ema import ExponentialMovingAverage


def test_follows_the_formula_and_copies_buffers():
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).double()
    average = ExponentialMovingAverage(model, 0.9)
    expected = [parameter.detach().clone() for parameter in model.parameters()]
    for _ in range(5):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter))
        model(torch.randn(4, 3, dtype=torch.double))
        average.update(model)
        expected = [0.9 * old + 0.1 * new for old, new in zip(expected, model.parameters(), strict=True)]
    for mine, theirs in zip(average.module.parameters(), expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-14, atol=1e-15)
    assert torch.equal(average.module[1].running_mean, model[1].running_mean)
    assert average.module[1].num_batches_tracked == 5
    assert not any(parameter.requires_grad for parameter in average.parameters())
