"""Paired differences: Tukey's HSD with folds as blocks, and intervals over the same resamples of molecules."""

import numpy as np
import pytest
from scipy import stats

from molgcn.comparison.differences import differences, tukey_hsd


def scores(folds, models, seed=0):
    draws = np.random.default_rng(seed)
    return draws.normal(size=(folds, 1)) * 3 + draws.normal(size=(folds, models)) * 0.1 + np.linspace(0, 0.2, models)


@pytest.mark.parametrize("folds", [2, 5, 25])
def test_two_models_are_compared_as_by_the_paired_t_test(folds):
    given = scores(folds, 2)
    mean, low, high, p = tukey_hsd(given)[0, 1]
    test = stats.ttest_rel(given[:, 1], given[:, 0])
    expected = test.confidence_interval(0.95)
    np.testing.assert_allclose([mean, low, high, p], [np.mean(given[:, 1] - given[:, 0]), *expected, test.pvalue], rtol=1e-6, atol=1e-9)


def test_three_models_without_differences_between_folds_are_compared_as_by_scipy():
    """Scores whose folds all have the same mean leave the block design only fewer degrees of freedom than scipy's one-way test."""
    given = scores(6, 3)
    given -= given.mean(axis=1, keepdims=True)
    found, test = tukey_hsd(given), stats.tukey_hsd(*given.T)
    one_way = np.sqrt(np.square(given - given.mean(axis=0)).sum() / 15 / 6)
    blocked = np.sqrt(np.square(given - given.mean(axis=0)).sum() / 10 / 6)
    ratio = blocked * stats.studentized_range.ppf(0.95, 3, 10) / (one_way * stats.studentized_range.ppf(0.95, 3, 15))
    expected = test.confidence_interval(0.95)
    for (first, second), (mean, low, high, _) in found.items():
        assert mean == pytest.approx(-test.statistic[first, second])
        half = (expected.high[second, first] - expected.low[second, first]) / 2
        np.testing.assert_allclose([low, high], [mean - half * ratio, mean + half * ratio], rtol=1e-6)


def test_equal_models_do_not_differ():
    assert tukey_hsd(np.ones((3, 2))) == {(0, 1): (0.0, 0.0, 0.0, 1.0)}


def compared(errors, folds, resamples=200):
    """Return the difference of two models in the mean of their errors [M] of molecules."""
    values = [lambda weights, own=own: {"mae/y": np.array([own.mean()]) if weights is None else weights @ own / len(own)} for own in errors]
    return differences(values, {"mae/y": folds}, len(errors[0]), resamples)[0]


def test_resamples_are_paired():
    """An error that is smaller for every molecule is so in every resample, however much molecules differ."""
    errors = np.random.default_rng(0).exponential(size=100) * 10
    found = compared([errors + 0.5, errors], np.empty((0, 2)))
    assert (found.value, found.molecules.low, found.molecules.high) == pytest.approx((-0.5,) * 3)
    assert found.folds is None
    assert (found.better(rising=False), found.better(rising=True)) == (1, 0)


def test_nothing_is_better_where_an_interval_holds_0():
    errors = np.random.default_rng(0).normal(size=(2, 50))
    assert compared(errors, np.empty((0, 2))).better(rising=False) is None
    assert compared(errors, np.empty((0, 2)), resamples=0).better(rising=False) is None


def test_folds_in_which_a_metric_is_undefined_are_left_out():
    folds = np.array([[1.0, 0.5], [np.nan, 0.3], [1.1, 0.7], [1.2, 0.6]])
    found = compared(np.ones((2, 10)), folds)
    assert found.mean == pytest.approx(np.mean([-0.5, -0.4, -0.6]))
    assert found.folds.undefined == 1
    assert found.better(rising=False) == 1
