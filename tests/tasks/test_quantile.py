"""Quantile regression agrees with the pinball loss of scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn.metrics import mean_pinball_loss
from uncertain_cases import T, case, options, softplus, task_of


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
