"""Measures of uncertainties equal values by hand, by numerical integration and by scipy."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import trapezoid
from scipy.stats import norm, spearmanr

from molgcn.calibration.measures import calibration_error, deviation_metrics, ence, miscalibration_area, nll, rank_correlation

LEVELS = np.linspace(0, 1, 20_001)
QUANTILES = norm.ppf((1 + LEVELS) / 2)


def test_nll_is_scipy_s():
    error, std = np.array([0.5, -2.0, 0.0]), np.array([1.0, 0.5, 3.0])
    assert nll(error, std) == pytest.approx(-norm.logpdf(error, scale=std).mean(), rel=1e-12)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(0.1, 5)), min_size=1, max_size=30))
def test_the_area_is_that_under_a_fine_grid_of_levels(pairs):
    error, std = np.array(pairs).T
    covered = (np.abs(error) <= QUANTILES[:, None] * std).mean(axis=1)
    assert miscalibration_area(error, std) == pytest.approx(trapezoid(np.abs(covered - LEVELS), LEVELS), abs=1e-3)


def test_the_area_by_hand():
    """An error of zero is covered at every level, an infinite one at none."""
    assert miscalibration_area(np.array([0.0]), np.array([1.0])) == pytest.approx(0.5)
    assert miscalibration_area(np.array([1e9]), np.array([1.0])) == pytest.approx(0.5)
    half = norm.ppf(0.75)  # covered from level 1/2 on: two triangles of 1/8
    assert miscalibration_area(np.array([half]), np.array([1.0])) == pytest.approx(0.25)


def test_normal_errors_are_calibrated():
    rng = np.random.default_rng(0)
    std = rng.uniform(0.5, 2, 20_000)
    found = deviation_metrics(rng.normal(size=20_000) * std, std)
    assert found["miscalibration_area"] < 0.01 and found["ence"] < 0.05
    assert found["uncertainty_spearman"] > 0.2
    assert ence(rng.normal(size=20_000) * 2 * std, std) == pytest.approx(1, abs=0.05)


def test_ence_by_hand():
    """Two bins of one molecule each give |1 - 2| / 1 and |4 - 1| / 4."""
    assert ence(np.array([1.0, -2.0]), np.array([4.0, 1.0])) == pytest.approx((1 + 0.75) / 2)


def test_the_rank_correlation_is_scipy_s():
    rng = np.random.default_rng(1)
    error, std = rng.normal(size=50), rng.random(50)
    assert rank_correlation(error, std) == pytest.approx(spearmanr(np.abs(error), std).statistic)
    assert math.isnan(rank_correlation(error, np.ones(50)))


def test_nothing_is_undefined():
    assert all(math.isnan(value) for value in deviation_metrics(np.empty(0), np.empty(0)).values())


def test_calibration_error_by_hand():
    """Bin (0.6, 0.7] has confidences 0.65 and 0.7 and one hit, bin (0.9, 1] has 1.0 and no hit."""
    probabilities = np.array([[0.65, 0.35], [0.3, 0.7], [1.0, 0.0]])
    expected = (2 * abs(1 / 2 - 0.675) + 1 * abs(0 - 1.0)) / 3
    assert calibration_error(np.array([0, 0, 1]), probabilities) == pytest.approx(expected)


def test_honest_probabilities_have_little():
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet([1, 1, 1], 20_000)
    labels = (rng.random((20_000, 1)) > probabilities.cumsum(axis=1)).sum(axis=1)
    assert calibration_error(labels, probabilities) < 0.015


def test_without_labels_it_is_undefined():
    assert math.isnan(calibration_error(np.empty(0, int), np.empty((0, 2))))
