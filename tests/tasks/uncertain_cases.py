"""The kinds of regression with uncertainty, for the tests that all of them share."""

from __future__ import annotations

from dataclasses import replace

import torch

from molgcn.config.training import TrainingConfig
from molgcn.tasks.registry import learned_with
from molgcn.tasks.regression import Regression

ENDINGS = {
    "mve": ["predicted", "std"],
    "evidential": ["predicted", "aleatoric std", "epistemic std"],
    "quantile": ["predicted", "lower", "upper"],
}
LOSSES = [*ENDINGS]
M, T = 200, 3


def options(name, **changes):
    return replace(TrainingConfig(), loss=name, **changes)


def task_of(name, **changes):
    """Return the task of a loss, with targets a in eV, b without a unit and c in kJ/mol."""
    return learned_with(Regression(("a", "b", "c"), ("eV", "", "kJ/mol")), options(name, **changes))


def case(name, dtype=torch.float64, device="cpu"):
    """Return outputs, targets of which some are missing, and their means and standard deviations."""
    torch.manual_seed(0)
    outputs = 2 * torch.randn(M, task_of(name).num_outputs, dtype=dtype, device=device)
    mean = torch.tensor([0.1, 50.0, -2.0], dtype=torch.float64, device=device)
    std = torch.tensor([1.5, 3.0, 0.1], dtype=torch.float64, device=device)
    targets = mean + 1.5 * std * torch.randn(M, T, dtype=torch.float64, device=device)
    targets[torch.rand(M, T, device=device) < 0.4] = torch.nan
    return outputs.requires_grad_(), targets, mean, std


def softplus(values):
    """Return the softplus of values plus the floor of the networks' outputs."""
    return torch.logaddexp(values, torch.zeros_like(values)) + 1e-6
