"""MAE, RMSE and R2 against exact arithmetic."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from molgcn.metrics import errors_of


def exact(predicted, true):
    """MAE, RMSE and R2 in rational numbers."""
    predicted, true = ([Fraction(float(value)) for value in values] for values in (predicted, true))
    error = [p - t for p, t in zip(predicted, true, strict=True)]
    squares, mean = sum(e * e for e in error), sum(true) / len(true)
    variation = sum((t - mean) ** 2 for t in true)
    mae, rmse = float(sum(map(abs, error)) / len(true)), math.sqrt(squares / len(true))
    return mae, rmse, float(1 - squares / variation) if variation else math.nan


@pytest.mark.parametrize(
    ("center", "spread", "outlier"),
    [(0, 1, None), (-11_000, 900, None), (5_000, 1e-3, None), (1e8, 1, None), (0, 1, 1e6), (3.3, 0, None)],
)
@pytest.mark.parametrize("skill", [0.1, 100])
def test_equal_to_exact_arithmetic(center, spread, outlier, skill):
    rng = np.random.default_rng(0)
    true = center + spread * rng.normal(size=(200, 2))
    if outlier is not None:
        true[7] = outlier
    predicted = true + skill * (spread or 1) * rng.normal(size=(200, 2))
    true[rng.random((200, 2)) < 0.3] = np.nan
    errors = errors_of(predicted, torch.from_numpy(true))
    assert list(errors) == ["mae", "rmse", "r2"]
    for i in range(2):
        known = ~np.isnan(true[:, i])
        for key, value in zip(("mae", "rmse", "r2"), exact(predicted[known, i], true[known, i]), strict=True):
            assert errors[key][i] == pytest.approx(value, rel=1e-9, abs=1e-12, nan_ok=True), key


def test_undefined_is_nan():
    true = torch.tensor([[1.0, torch.nan, 0.1, 2.0], [torch.nan, torch.nan, 0.1, 3.0], [torch.nan, torch.nan, 0.1, 4.0]])
    errors = errors_of(torch.zeros(3, 4), true)
    assert errors["mae"][0] == errors["rmse"][0] == 1.0
    assert [math.isnan(value) for value in errors["r2"]] == [True, True, True, False]  # one value, none, equal ones
    assert [math.isnan(value) for value in errors["mae"]] == [False, True, False, False]
    assert all(math.isnan(value) for (value,) in errors_of(torch.zeros(0, 1), torch.zeros(0, 1)).values())


@given(st.floats(-1e9, 1e9), st.integers(2, 50))
def test_equal_values_have_no_r2(value, count):
    assert math.isnan(errors_of(np.zeros((count, 1)), np.full((count, 1), value))["r2"][0])


def test_predictions_that_are_no_numbers_are_not_hidden():
    errors = errors_of(np.array([[1.0], [np.nan]]), np.array([[1.0], [2.0]]))
    assert all(math.isnan(value) for (value,) in errors.values())
