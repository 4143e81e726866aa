"""Platt scaling agrees with scikit-learn's, which is private in CalibratedClassifierCV, and with scipy's minimum."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logit

from molgcn.calibration.outputs import Classes
from molgcn.calibration.platt import Platt


def binary(seed, count=300):
    rng = np.random.default_rng(seed)
    given = rng.beta(0.5, 0.5, count)
    return given, (rng.random(count) < expit(0.4 * logit(given) - 0.7)).astype(float)


def columns(given):
    return Classes(np.column_stack([1 - given, given]))


def test_it_is_the_likeliest_curve_for_platt_s_targets():
    given, labels = binary(0)
    fitted = Platt.fit(columns(given), labels)
    positive = labels.sum()
    target = np.where(labels == 1, (positive + 1) / (positive + 2), 1 / (len(labels) - positive + 2))

    def loss(curve):
        found = expit(curve[0] * logit(given) + curve[1])
        return -np.mean(target * np.log(found) + (1 - target) * np.log1p(-found))

    found = minimize(loss, [1, 0], method="BFGS", options={"gtol": 1e-9}).x
    np.testing.assert_allclose([fitted.slope[0], fitted.intercept[0]], found, rtol=1e-4, atol=1e-5)
    probabilities = fitted.probabilities(columns(given))
    np.testing.assert_allclose(probabilities[:, 1], expit(found[0] * logit(given) + found[1]), atol=1e-5)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-15)


@pytest.mark.parametrize("given", [[0.1, 0.2, 0.8, 0.9], [0.0, 0.0, 1.0, 1.0]])
def test_classes_that_can_be_told_apart_give_a_finite_curve(given):
    fitted = Platt.fit(columns(np.array(given)), np.array([0.0, 0.0, 1.0, 1.0]))
    assert 0 < fitted.slope[0] < 20
    assert np.isfinite(fitted.probabilities(columns(np.array([0.0, 0.5, 1.0])))).all()


def test_more_classes_are_calibrated_one_at_a_time_and_sum_to_one():
    rng = np.random.default_rng(3)
    given = rng.dirichlet([1, 1, 1], 200)
    labels = np.array([rng.choice(3, p=row) for row in given]).astype(float)
    fitted = Platt.fit(Classes(given), labels)
    assert len(fitted.slope) == len(fitted.intercept) == 3
    each = np.stack([expit(fitted.slope[one] * logit(given[:, one]) + fitted.intercept[one]) for one in range(3)], axis=1)
    np.testing.assert_allclose(fitted.probabilities(Classes(given)), each / each.sum(axis=1, keepdims=True), rtol=1e-12)
    alone = Platt.fit(columns(given[:, 2]), (labels == 2).astype(float))
    assert (alone.slope[0], alone.intercept[0]) == pytest.approx((fitted.slope[2], fitted.intercept[2]), rel=1e-6)
