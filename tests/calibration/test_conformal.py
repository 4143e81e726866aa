"""Conformal prediction has the thresholds computed by hand, and its intervals and sets cover as the theory says."""

from decimal import ROUND_CEILING, Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, kstest

from molgcn.calibration.conformal import Conformal, rank, threshold
from molgcn.calibration.outputs import Classes, Numbers


@pytest.mark.parametrize(("alpha", "expected"), [(0.1, 9.0), (0.2, 8.0), (0.5, 5.0), (0.05, np.inf), (0.09, np.inf), (0.899, 2.0)])
def test_the_threshold_of_nine_scores(alpha, expected):
    assert threshold(np.random.default_rng(0).permutation(np.arange(1.0, 10.0)), alpha) == expected


def test_the_rank_is_that_of_the_decimals():
    """In float64, (n + 1)(1 - alpha) is a little more than a whole number for some n, and its ceiling one too many."""
    for alpha in ("0.01", "0.05", "0.1", "0.2", "0.3"):
        exact = [int(((n + 1) * (1 - Decimal(alpha))).to_integral_value(ROUND_CEILING)) for n in range(1000)]
        assert [rank(n, float(alpha)) for n in range(1000)] == exact


@settings(max_examples=100)
@given(st.lists(st.floats(-1e6, 1e6), max_size=60), st.floats(0.001, 0.999))
def test_at_least_the_promised_share_of_the_scores_is_taken(scores, alpha):
    found = threshold(np.array(scores), alpha)
    assert (np.array(scores) <= found).sum() >= min(rank(len(scores), alpha), len(scores))
    assert np.isinf(found) == (rank(len(scores), alpha) > len(scores))


@pytest.mark.parametrize(("count", "alpha"), [(19, 0.1), (50, 0.1), (100, 0.25)])
def test_coverage_has_the_beta_law(count, alpha):
    """The coverage over 4,000 calibration sets has the distribution Beta(k, n + 1 - k) by Kolmogorov-Smirnov, and the right mean."""
    draws = np.random.default_rng(count).random((4000, count))  # with uniform scores the coverage is the threshold
    coverage = np.array([threshold(scores, alpha) for scores in draws])
    law = beta(rank(count, alpha), count + 1 - rank(count, alpha))
    assert kstest(coverage, law.cdf).pvalue > 1e-3
    assert coverage.mean() > 1 - alpha - 4 * law.std() / np.sqrt(len(draws))


def numbers(kind, rng, count):
    values = rng.normal(size=count)
    std = rng.uniform(0.2, 2.0, count)
    true = values + std * rng.standard_t(3, count)
    if kind == "absolute":
        return Numbers(values), true
    if kind == "normalised":
        return Numbers(values, 3 * std), true
    return Numbers(values, None, np.stack([values - 0.3 * std, values + 0.1 * std], axis=1)), true


@pytest.mark.parametrize("kind", ["absolute", "normalised", "quantile"])
def test_intervals_cover_as_promised(kind):
    """The coverage of 400 draws is within 4 standard errors of the theory, whatever the model gets wrong."""
    rng, alpha, found = np.random.default_rng(1), 0.2, []
    for _ in range(400):
        fitted = Conformal.fit(*numbers(kind, rng, 39), alpha, "plain")
        assert fitted.score == kind
        output, true = numbers(kind, rng, 500)
        lower, upper = fitted.bounds(output).T
        assert (lower <= upper).all()
        found.append(np.mean((lower <= true) & (true <= upper)))
    law = beta(32, 8)
    assert abs(np.mean(found) - 0.8) < 4 * np.sqrt((law.var() + 0.16 / 500) / 400)


@pytest.mark.parametrize("sets", ["plain", "adaptive"])
@pytest.mark.parametrize("num_classes", [2, 4])
def test_sets_cover_as_promised(sets, num_classes):
    rng, alpha, found = np.random.default_rng(2), 0.1, []

    def draw(count):
        given = rng.dirichlet(np.full(num_classes, 0.7), count)
        true = np.array([rng.choice(num_classes, p=0.6 * row + 0.4 / num_classes) for row in given])  # the model is too sure
        return Classes(given), true.astype(float)

    for _ in range(100):
        fitted = Conformal.fit(*draw(59), alpha, sets)
        output, true = draw(100)
        found.append(np.mean(fitted.members(output)[np.arange(100), true.astype(int)]))
    law = beta(54, 6)
    assert np.mean(found) > 0.9 - 4 * np.sqrt((law.var() + 0.09 / 100) / 100)


def test_bounds_by_hand():
    values, std = np.array([1.0, -2.0]), np.array([0.5, 2.0])
    interval = np.array([[0.0, 2.0], [-2.5, -1.5]])
    for score, number, expected in [
        ("absolute", 0.5, [[0.5, 1.5], [-2.5, -1.5]]),
        ("normalised", 2.0, [[0.0, 2.0], [-6.0, 2.0]]),
        ("quantile", 0.25, [[-0.25, 2.25], [-2.75, -1.25]]),
        ("quantile", -0.75, [[0.75, 1.25], [-2.0, -2.0]]),  # the second has nothing left
        ("absolute", np.inf, [[-np.inf, np.inf]] * 2),
    ]:
        np.testing.assert_allclose(Conformal(score, number).bounds(Numbers(values, std, interval)), expected)


def test_sets_by_hand():
    output = Classes(np.array([[0.7, 0.2, 0.1], [0.3, 0.3, 0.4], [0.05, 0.9, 0.05]]))
    assert Conformal("plain", 0.75).members(output).tolist() == [[True, False, False], [True, True, True], [False, True, False]]
    assert Conformal("adaptive", 0.75).members(output).tolist() == [[True, False, False], [True, False, True], [False, False, False]]
    assert Conformal("plain", np.inf).members(output).all()
