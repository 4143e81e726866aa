"""Mean-variance estimation agrees with the normal distribution of SciPy."""

import numpy as np
import pytest
import torch
from scipy.stats import norm
from uncertain_cases import T, case, options, softplus, task_of


def test_the_loss_is_the_likelihood_of_a_normal_distribution():
    outputs, targets, mean, std = case("mve")
    value, sums = task_of("mve").loss(options("mve"), fused=True)(outputs, targets, mean, std)
    center, raw = outputs.detach().unflatten(1, (T, 2)).unbind(-1)
    standardised = (targets - mean) / std
    expected = -norm.logpdf(standardised, center, softplus(raw).sqrt())
    assert value.item() == pytest.approx(np.nanmean(expected), rel=1e-10)
    assert sums[0].item() == pytest.approx(np.nansum(expected), rel=1e-10)


def test_columns_are_mean_and_standard_deviation_and_measured_by_their_likelihood():
    task, (outputs, targets, mean, std) = task_of("mve"), case("mve")
    predictions = task.decode(outputs.detach(), mean, std).numpy()
    center, raw = outputs.detach().unflatten(1, (T, 2)).unbind(-1)
    np.testing.assert_allclose(predictions[:, ::2], center * std + mean, rtol=1e-10)
    np.testing.assert_allclose(predictions[:, 1::2], softplus(raw).sqrt() * std, rtol=1e-10)
    np.testing.assert_array_equal(task.spread(predictions), predictions[:, 1::2])
    expected = np.nanmean(-norm.logpdf(targets, predictions[:, ::2], predictions[:, 1::2]), axis=0)
    found = task.measure(predictions, targets.numpy())
    np.testing.assert_allclose([found[f"nll/{name}"] for name in task.names], expected, rtol=1e-10)


def test_variance_has_a_floor():
    outputs = torch.tensor([[0.0, -1e30]], dtype=torch.float32).repeat(1, T)
    predictions = task_of("mve").decode(outputs, torch.zeros(T), torch.ones(T))
    torch.testing.assert_close(predictions[:, 1::2], torch.full((1, T), 1e-3, dtype=torch.float64), rtol=1e-6, atol=0)
