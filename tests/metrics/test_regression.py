"""Metrics of numbers agree with exact arithmetic, scipy and scikit-learn."""

import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ConstantInputWarning, pearsonr, spearmanr
from sklearn.metrics import mean_absolute_error, mean_absolute_percentage_error, r2_score, root_mean_squared_error

from molgcn.metrics import errors_of
from molgcn.metrics.regression import BOUNDED, IN_UNITS, LOGGED, METRICS, RISING, bounded_metrics, regression_metrics

TIGHT = {"rtol": 1e-12, "atol": 1e-12}
EIGHTHS = st.integers(-80, 80).map(lambda number: number / 8)  # so that equal values are common


def exact(predicted, true):
    """Return MAE, RMSE and R2 in rational numbers."""
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


@pytest.mark.parametrize("seed", range(5))
def test_bounded_metrics_are_those_of_predictions_moved_to_their_bounds(seed):
    """Chemprop's definition, cell by cell: a prediction beyond a bound, on its right side, counts as the bound."""
    rng = np.random.default_rng(seed)
    true, predicted = rng.normal(size=(60, 2)), rng.normal(size=(60, 2))
    true[rng.random((60, 2)) < 0.3] = np.nan
    bounds = rng.integers(-1, 2, (60, 2)).astype(float)
    moved = predicted.copy()
    for row, column in np.ndindex(60, 2):
        right = predicted[row, column] < true[row, column] if bounds[row, column] < 0 else predicted[row, column] > true[row, column]
        if bounds[row, column] and right:
            moved[row, column] = true[row, column]
    found = bounded_metrics(predicted, torch.from_numpy(true), torch.from_numpy(bounds), [*BOUNDED, "mae"])
    assert list(found) == ["bounded_mae", "bounded_rmse", "bounded_r2"]
    for column in range(2):
        known = ~np.isnan(true[:, column])
        for metric, value in zip(found, exact(moved[known, column], true[known, column]), strict=True):
            assert found[metric][0, column] == pytest.approx(value, rel=1e-9)
    plain = bounded_metrics(predicted, torch.from_numpy(true), None, ["bounded_rmse"])["bounded_rmse"]
    np.testing.assert_array_equal(plain, regression_metrics(predicted, true, ["rmse"])["rmse"])


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


def oracle(predicted, true):
    """Return every metric by scipy and scikit-learn, NaN where it is undefined here."""
    varies, both = len(set(true)) > 1, len(set(true)) > 1 and len(set(predicted)) > 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstantInputWarning)
        return {
            "mae": mean_absolute_error(true, predicted),
            "rmse": root_mean_squared_error(true, predicted),
            "r2": r2_score(true, predicted) if varies else math.nan,
            "pearson": pearsonr(true, predicted).statistic if both else math.nan,
            "spearman": spearmanr(true, predicted).statistic if both else math.nan,
            "mape": mean_absolute_percentage_error(true, predicted) if 0 not in true else math.nan,
        }


@given(st.lists(st.tuples(EIGHTHS, EIGHTHS, st.booleans()), min_size=1, max_size=40))
def test_equal_to_scipy_and_scikit_learn(rows):
    predicted, true, missing = (np.array(column) for column in zip(*rows, strict=True))
    found = regression_metrics(predicted[:, None], np.where(missing, math.nan, true)[:, None])
    assert tuple(found) == METRICS and set(METRICS) > RISING | IN_UNITS | set(LOGGED)
    expected = oracle(predicted[~missing], true[~missing]) if not missing.all() else dict.fromkeys(METRICS, math.nan)
    for metric in METRICS:
        assert found[metric].shape == (1, 1)
        np.testing.assert_allclose(found[metric][0, 0], expected[metric], err_msg=metric, **TIGHT)


@given(st.lists(st.tuples(EIGHTHS, EIGHTHS, st.booleans(), st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40))
def test_a_weight_is_that_many_copies(rows):
    predicted, true, missing, *weights = (np.array(column) for column in zip(*rows, strict=True))
    true = np.where(missing, math.nan, true)
    found = regression_metrics(predicted[:, None], true[:, None], weights=np.array(weights, float))
    for place, counts in enumerate(weights):
        copies = regression_metrics(np.repeat(predicted, counts)[:, None], np.repeat(true, counts)[:, None])
        for metric in METRICS:
            if metric == "mape" and (true == 0).any():
                assert math.isnan(found[metric][place, 0])
            else:
                np.testing.assert_allclose(found[metric][place, 0], copies[metric][0, 0], err_msg=metric, rtol=1e-9, atol=1e-9)


def test_only_what_is_wanted_is_computed():
    values = np.arange(6.0).reshape(3, 2)
    assert list(regression_metrics(values, values, ("spearman", "mae"))) == ["mae", "spearman"]
