"""Regression with uncertainties agrees with distributions of SciPy and PyTorch, and with the pinball loss of scikit-learn."""

import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn.metrics import mean_pinball_loss
from torch.distributions import StudentT
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


def parameters(outputs):
    """Return gamma, nu, alpha and beta as published, with the floor."""
    gamma, nu, alpha, beta = outputs.detach().unflatten(1, (T, 4)).unbind(-1)
    return gamma, softplus(nu), softplus(alpha) + 1, softplus(beta)


@pytest.mark.parametrize("weight", [0.0, 0.2, 3.0])
def test_the_loss_is_the_regularised_likelihood_of_student_s_t(weight):
    outputs, targets, mean, std = case("evidential")
    changed = options("evidential", evidential_regularization=weight)
    value, _ = task_of("evidential").loss(changed, fused=True)(outputs, targets, mean, std)
    gamma, nu, alpha, beta = parameters(outputs)
    standardised = ((targets - mean) / std).nan_to_num(0.0)
    student = StudentT(2 * alpha, gamma, (beta * (1 + nu) / (nu * alpha)).sqrt())
    terms = -student.log_prob(standardised) + weight * (standardised - gamma).abs() * (2 * nu + alpha)
    assert value.item() == pytest.approx(terms[~targets.isnan()].mean().item(), rel=1e-10)


def test_columns_are_aleatoric_and_epistemic_and_together_the_spread():
    task, (outputs, targets, mean, std) = task_of("evidential"), case("evidential")
    predictions = task.decode(outputs.detach(), mean, std).numpy()
    gamma, nu, alpha, beta = parameters(outputs)
    np.testing.assert_allclose(predictions[:, ::3], gamma * std + mean, rtol=1e-10)
    np.testing.assert_allclose(predictions[:, 1::3], (beta / (alpha - 1)).sqrt() * std, rtol=1e-10)
    np.testing.assert_allclose(predictions[:, 2::3], (beta / (nu * (alpha - 1))).sqrt() * std, rtol=1e-10)
    total = np.sqrt(predictions[:, 1::3] ** 2 + predictions[:, 2::3] ** 2)
    np.testing.assert_allclose(task.spread(predictions), total, rtol=1e-10)
    expected = np.nanmean(-norm.logpdf(targets, predictions[:, ::3], total), axis=0)
    found = task.measure(predictions, targets.numpy())
    np.testing.assert_allclose([found[f"nll/{name}"] for name in task.names], expected, rtol=1e-10)


def test_much_evidence_keeps_its_digits_in_float32():
    """With alpha = 1e5 both logarithms of the gamma function are about a million, and their difference is six."""
    outputs = torch.tensor([[0.3, 2.0, 1e5, 1.0]]).repeat(1, T)
    targets, statistics = torch.ones(1, T), (torch.zeros(T), torch.ones(T))
    values, gradients = [], []
    for dtype in (torch.float32, torch.float64):
        given = outputs.to(dtype).requires_grad_()
        value, _ = task_of("evidential").loss(options("evidential", evidential_regularization=0.0), fused=True)(
            given, targets.to(dtype), *(one.to(dtype) for one in statistics)
        )
        values.append(value.item())
        gradients.append(torch.autograd.grad(value, given)[0].double())
    assert values[0] == pytest.approx(values[1], rel=1e-5)
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-9)


def pinball(targets, columns, levels):
    """Return the mean loss over the levels for one target [M], NaN where missing, and its columns [M, 3]."""
    known = ~np.isnan(targets)
    return np.mean([mean_pinball_loss(targets[known], one[known], alpha=level) for one, level in zip(columns.T, levels, strict=True)])


@pytest.mark.parametrize("alpha", [0.1, 0.5])
def test_the_loss_is_the_pinball_loss_of_three_quantiles(alpha):
    outputs, targets, mean, std = case("quantile")
    task, changed = task_of("quantile", quantile_alpha=alpha), options("quantile", quantile_alpha=alpha)
    value, sums = task.loss(changed, fused=True)(outputs, targets, mean, std)
    median, below, above = outputs.detach().unflatten(1, (T, 3)).unbind(-1)
    columns = torch.stack([median, median - softplus(below) + 1e-6, median + softplus(above) - 1e-6], dim=-1).numpy()
    standardised = ((targets - mean) / std).numpy()
    each = [pinball(standardised[:, one], columns[:, one], [0.5, alpha / 2, 1 - alpha / 2]) for one in range(T)]
    counts = (~np.isnan(standardised)).sum(axis=0)
    assert value.item() == pytest.approx(np.average(each, weights=counts), rel=1e-10)
    assert sums[1] == counts.sum()


def test_quantiles_do_not_cross_and_coverage_is_their_share():
    task, (outputs, targets, mean, std) = task_of("quantile"), case("quantile")
    predictions = task.decode(outputs.detach(), mean, std).numpy().reshape(-1, T, 3)
    median, lower, upper = np.moveaxis(predictions, -1, 0)
    assert (lower < median).all() and (median < upper).all()
    found = task.measure(predictions.reshape(len(predictions), -1), targets.numpy())
    for place, name in enumerate(task.names):
        true = targets[:, place].numpy()
        known = ~np.isnan(true)
        inside = (lower[known, place] <= true[known]) & (true[known] <= upper[known, place])
        assert 0 < inside.mean() < 1
        assert found[f"coverage/{name}"] == pytest.approx(inside.mean(), rel=1e-12)
        assert found[f"pinball/{name}"] == pytest.approx(pinball(true, predictions[:, place], task.levels), rel=1e-10)


def test_the_best_constants_are_the_quantiles():
    """The quantiles of an exponential distribution are -ln(1 - level)."""
    task, loss = task_of("quantile", quantile_alpha=0.2), task_of("quantile", quantile_alpha=0.2).loss(options("quantile"), fused=True)
    targets = -torch.log1p(-(torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000)[:, None].repeat(1, T)
    statistics = torch.zeros(T, dtype=torch.float64), torch.ones(T, dtype=torch.float64)
    outputs = torch.zeros(1, 3 * T, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([outputs], max_iter=100, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        value, _ = loss(outputs.expand(len(targets), -1), targets, *statistics)
        value.backward()
        return value

    optimizer.step(closure)
    expected = -np.log1p(-np.array([0.5, 0.1, 0.9]))
    np.testing.assert_allclose(task.decode(outputs.detach(), *statistics).numpy()[0], np.tile(expected, T), rtol=1e-2)
