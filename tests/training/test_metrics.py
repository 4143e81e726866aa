import math

import numpy as np
import pytest
import torch

from molgcn.training.metrics import TargetMetrics


@pytest.mark.parametrize("batch_size", [1, 3, 7, 20])
def test_equal_to_numpy_whatever_the_batch_size(batch_size):
    rng = np.random.default_rng(0)
    mean, std = np.array([-11_000.0, 3.0]), np.array([900.0, 0.01])
    prediction, target = rng.normal(size=(20, 2)), rng.normal(size=(20, 2))
    target[rng.random((20, 2)) < 0.3] = np.nan
    metrics = TargetMetrics(("u0", "gap"))
    for start in range(0, 20, batch_size):
        part = slice(start, start + batch_size)
        metrics.update(torch.from_numpy(prediction[part]), torch.from_numpy(target[part]))
    result = metrics.compute(torch.from_numpy(std))
    for i, name in enumerate(("u0", "gap")):
        known = ~np.isnan(target[:, i])
        true, guess = (target[known, i] * std[i] + mean[i], prediction[known, i] * std[i] + mean[i])
        assert result[f"mae/{name}"] == pytest.approx(np.abs(true - guess).mean(), rel=1e-6)
        assert result[f"rmse/{name}"] == pytest.approx(np.sqrt(((true - guess) ** 2).mean()), rel=1e-6)
        assert result[f"r2/{name}"] == pytest.approx(1 - ((true - guess) ** 2).sum() / ((true - true.mean()) ** 2).sum(), rel=1e-5)


def test_too_few_values_are_nan_and_reset_forgets():
    metrics = TargetMetrics(("a", "b"))
    metrics.update(torch.zeros(1, 2), torch.tensor([[1.0, torch.nan]]))
    result = metrics.compute(torch.ones(2))
    assert result["mae/a"] == 1.0
    assert math.isnan(result["r2/a"])
    assert math.isnan(result["mae/b"])
    metrics.reset()
    assert all(math.isnan(value) for value in metrics.compute(torch.ones(2)).values())
