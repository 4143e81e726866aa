"""Bootstrap intervals have the right coverage, and resamples the right contents."""

from __future__ import annotations

import math

import numpy as np
import pytest

from molgcn.comparison.compare import intervals
from molgcn.metrics.regression import regression_metrics


def mean_of(values):
    return lambda weights: {"mean": weights @ values / weights.sum(axis=1)}


def test_an_interval_is_percentiles_over_resamples_of_the_molecules():
    values = np.random.default_rng(0).normal(size=400)
    found = intervals(mean_of(values), 400, 4_000, seed=1)["mean"]
    half = 1.96 * values.std() / math.sqrt(400)
    assert (found.low, found.high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.1 * half)
    assert found.undefined == 0


def test_every_resample_has_as_many_molecules_and_the_seed_decides():
    seen = []

    def values(weights):
        seen.append(weights)
        return {"x": weights @ np.arange(7.0)}

    assert intervals(values, 7, 50, seed=3) == intervals(values, 7, 50, seed=3) != intervals(values, 7, 50, seed=4)
    for weights in seen:
        assert weights.dtype == np.float64 and (weights >= 0).all() and (weights.sum(axis=1) == 7).all()


def test_resamples_in_pieces_are_the_same_resamples():
    """A set so large that memory holds a few resamples at once draws what it would draw in one go."""
    size, draws = 1_000_000, np.random.default_rng(5)
    expected = [np.bincount(draws.integers(size, size=size), minlength=size)[:3].sum() for _ in range(5)]
    found = []
    intervals(lambda weights: {"x": found.extend(weights[:, :3].sum(axis=1)) or weights[:, 0]}, size, 5, seed=5)
    assert found == expected


@pytest.mark.parametrize(("share", "has_one"), [(0.0, True), (0.4, True), (0.5, False), (1.0, False)])
def test_undefined_resamples_are_counted_and_half_of_them_are_too_many(share, has_one):
    found = intervals(lambda weights: {"x": np.where(np.arange(len(weights)) < share * len(weights), math.nan, 1.0)}, 10, 100, seed=0)
    assert ("x" in found) == has_one
    if has_one:
        assert (found["x"].low, found["x"].high, found["x"].undefined) == (1.0, 1.0, round(100 * share))


def test_one_molecule_or_no_resamples_give_no_intervals():
    assert (
        intervals(mean_of(np.ones(3)), 3, 0, seed=0)
        == intervals(mean_of(np.ones(1)), 1, 100, seed=0)
        == intervals(mean_of(np.ones(0)), 0, 100, seed=0)
        == {}
    )


@pytest.mark.slow
def test_ninety_five_of_a_hundred_intervals_hold_the_true_value():
    """The mean absolute error of normal errors is sigma * sqrt(2 / pi), which 95 % of the intervals are to hold."""
    draws, truth, held = np.random.default_rng(0), math.sqrt(2 / math.pi), 0
    for trial in range(1_000):
        errors = draws.normal(size=(300, 1))

        def values(weights, errors=errors):
            return {"mae": regression_metrics(errors, np.zeros((300, 1)), ("mae",), weights)["mae"][:, 0]}

        found = intervals(values, 300, 1_000, seed=trial)["mae"]
        held += found.low <= truth <= found.high
    assert held / 1_000 == pytest.approx(0.95, abs=0.02)  # three standard deviations of a share of 1,000 trials
