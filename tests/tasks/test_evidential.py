"""Evidential regression agrees with Student's t of PyTorch and the normal distribution of SciPy."""

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch.distributions import StudentT
from uncertain_cases import T, case, options, softplus, task_of


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
